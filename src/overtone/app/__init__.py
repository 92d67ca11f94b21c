"""What people see: the command line, pictures, the report, the demo."""
