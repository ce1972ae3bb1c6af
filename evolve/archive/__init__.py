"""Knowledge and workspaces on their way in and out: files of others, archives, backups."""
