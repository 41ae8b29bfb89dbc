"""share(): jobs that start and find one server between them, and loaders that differ."""
