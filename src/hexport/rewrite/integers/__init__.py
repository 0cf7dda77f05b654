"""What integers carry badly, in forms they carry well."""
