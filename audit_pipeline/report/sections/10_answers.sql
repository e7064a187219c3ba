-- The answer of every pair of a model and a benchmark (view leaderboard) by the detector that was named beforehand, the
-- most important answers first.
--
-- model_title: title of the model
-- benchmark_title: title of the benchmark
-- description: description of the benchmark
-- labels_by: person or rule that decides which texts are members; null: not recorded
-- scored: scored part of the conversations in words; null: the texts are no conversations
-- handed_over: file of external scores; null: the model was run here
-- sides: two sides of the AUROC: labelled members and non-members, or audited and held-out texts
-- outcome: kind of the answer
-- headline: answer in one line
-- explanation: answer in a few sentences, within the limits of the claim level
-- question: question in plain words
-- how_sure: certainty of the answer in plain words, within the limits of the claim level
-- what_would_change: what would change the answer, in plain words
-- claim_level: screening only, statistical evidence or sound test; null: nothing was evaluated
-- claim_stated_by: person whose statement the claim level depends on; null: it depends on no statement
-- detector: headline detector; null: none of several detectors was named, or the headline detector has no score
-- detector_chosen: reason of the choice: default (one of ours), named (by the user) or alone (the only detector)
-- every_detector: the first twelve detectors by name if none was named; else empty
-- more_detectors: number of detectors that are not listed
-- counted: numbers of evaluated and of calibrating texts; empty if the benchmark was rebuilt after the audit
-- unknown: number of texts without a known label
-- not_scored: number of labelled texts without a score by the headline detector
-- warning: warning for readers of the AUROC; null: none
-- auroc: AUROC of the headline detector; 0.5 is chance
-- tpr_at_5_fpr: share of members found while at most 5% of non-members are taken for members
-- blind: AUROC of the blind control, which uses the texts and no model
-- strongest_control: blind control of the same build with the highest AUROC of four
-- documents: test results of a shelf's documents, by the headline detector, or by all detectors if none was named
-- tested: number of tested documents (groups of texts)
-- standing_out: number of documents with q_bh at most 0.05, or with q_ledger at most 0.05 by any detector if none was named
-- detectors: number of detectors that the q-values allow for: 1 if a detector was named
-- tests: number of p-values that the q-values allow for: documents times detectors
-- can_stand_out: number of these p-values by detectors that are not known to run against training
-- direction: side of labelled texts that scores higher: training (members), opposite or none; null: no labels
-- calibration_groups: smallest number of calibration documents that a document was compared with
-- calibration_groups_in_all: number of all calibration documents, which the thresholds were chosen on
-- smallest_q: smallest q-value that this number of calibration documents allows, if all documents stand out
-- flagged: share of all texts at or above the threshold; null: no threshold
-- corrected: this share, corrected by the error rates of the detector; null: no threshold
-- alpha: target false-positive rate of the threshold
-- tried: number of attempts and of their runs; null: not in the ledger
-- planned: sealed plan of the results; null: time of the work not in the ledger
-- audited_at: time at which the numbers were complete
-- section: number of the evidence section in this report; null: no section
-- lineage: number of the ledger entry in this report
WITH runs AS (
    SELECT model, benchmark, coalesce(max(run_id) FILTER ("table" = 'evaluations'), max(run_id)) AS run_id
    FROM current_runs SEMI JOIN shown_pairs USING (model, benchmark)
    WHERE "table" IN ('scores', 'evaluations') GROUP BY ALL
)
SELECT model, benchmark, CASE WHEN shown.place <= page.sections THEN shown.place END AS section, entries.number AS lineage,
    (SELECT count(*) FROM asked_pairs) AS in_all
FROM shown_pairs AS shown JOIN answers USING (model, benchmark) CROSS JOIN page
LEFT JOIN runs USING (model, benchmark)
LEFT JOIN entries ON entries.run_id = runs.run_id
    AND entries."table" = CASE WHEN answers.claim_level IS NULL THEN 'scores' ELSE 'evaluations' END
    AND entries."partition" = answers.benchmark || '|' || answers.model
ORDER BY shown.place;
