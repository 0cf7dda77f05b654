"""Code that calls a package from an application, with the package's own names, shapes and files."""
