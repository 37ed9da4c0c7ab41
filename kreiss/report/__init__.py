"""What people look at: pictures, figures of the papers by name, one-file HTML pages. Never trains."""
