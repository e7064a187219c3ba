-- missing_files is a relation of the build: entries whose file is not there, or was left out.
INSERT INTO files_gone BY NAME FROM missing_files;
