CREATE MACRO evaluations_of_run(run) AS TABLE
SELECT * FROM evaluations WHERE run_id = run;

COMMENT ON MACRO TABLE evaluations_of_run IS
    'the metrics that one run wrote';
