"""Static pictures of the views, for readers without a script."""
