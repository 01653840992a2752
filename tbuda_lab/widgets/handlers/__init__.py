"""Who answers a page: edits, queries, runs, traces, JupyterLab's commands."""
