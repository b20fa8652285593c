"""What all reports share: drawing, formats, notes, tables, rows and their files, the runs that MLflow gets."""
