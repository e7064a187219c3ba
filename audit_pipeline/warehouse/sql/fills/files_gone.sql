-- missing_files is a relation of the build: entries whose file is missing or was skipped.
INSERT INTO files_gone BY NAME FROM missing_files;
