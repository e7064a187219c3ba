-- missing_files is a temporary table of the build: entries whose file it did not find.
DELETE FROM files_gone;

INSERT INTO files_gone BY NAME FROM missing_files;
