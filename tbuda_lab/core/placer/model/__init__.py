"""What the search works on: the problem, candidates, edges between them, segments and the grid."""
