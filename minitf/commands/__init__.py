"""What each script runs; the installed console commands are the same code."""
