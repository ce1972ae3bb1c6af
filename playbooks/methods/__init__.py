"""The writers of published methods, one file each: what a preset names as its reflector or curator."""
