-- missing_files is a temporary table of the build: entries whose file it did not find.
INSERT INTO files_gone BY NAME FROM missing_files;
