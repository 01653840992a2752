"""What the package `sambaflow` has beside `samba`."""
