-- The answer of every pair of a model and a benchmark (view leaderboard), by the detector that was named before
-- anything was computed; those that matter most first.
--
-- model_title: what people call the model
-- benchmark_title: what people call the benchmark
-- description: what the benchmark is, in words
-- labels_by: who says which texts are members; null where it was not kept
-- handed_over: the file of scores that a user handed over; null where the model was run here
-- sides: what the AUROC compares: labelled members with non-members, or audited texts with held-out ones
-- outcome: the kind of the answer
-- headline: the answer in one line
-- explanation: the answer in a few sentences, which say no more than the claim level allows
-- question: what was asked, in a few plain words
-- how_sure: how sure the answer is, in plain words; no more than the claim level allows
-- what_would_change: what would change the answer, in plain words
-- claim_level: screening only, statistical evidence or sound test; null where nothing was evaluated
-- claim_stated_by: whose word the level rests on; null where it is more than somebody's word
-- detector: the headline detector; null where none of several was named, or it has no score
-- detector_chosen: default: one of ours; named: by whoever ran this; alone: there is no other
-- every_detector: where no detector was named: the first twelve by name; empty else
-- more_detectors: of them, those that are not listed
-- counted: texts that were evaluated and that calibrate; empty where the benchmark was built anew since
-- unknown: texts of unknown label
-- not_scored: labelled texts without a score by the headline detector
-- warning: what to heed when reading the AUROC; null where nothing stands against it
-- auroc: its AUROC; 0.5 is chance
-- tpr_at_5_fpr: members found while at most 5% of non-members are taken for members
-- blind: AUROC of the blind control, which never sees the model: what the texts alone give away
-- strongest_control: of the four blind controls of the same build the one with the highest AUROC
-- documents: what a shelf's documents came to, by the headline detector, or by all where none was named
-- tested: documents (groups of texts) that were tested
-- standing_out: of them, those with q_bh at most 0.05; where no detector was named, q_ledger by some detector
-- detectors: detectors that the q-values allow for: 1 where one was named
-- tests: p-values that they allow for: documents times detectors
-- can_stand_out: of these, those by detectors that are not known to run against training
-- direction: which of the labelled texts score higher: training (members), opposite, none; null where none are known
-- calibration_groups: the fewest calibration documents that any was compared with
-- calibration_groups_in_all: calibration documents that the thresholds were chosen on: all there are
-- smallest_q: the smallest such q-value that so many calibration documents allow, were all to stand out
-- flagged: share of all texts at or above the threshold; null: there is no threshold
-- corrected: the share corrected by the detector's error rates; null: there is no threshold
-- alpha: false-positive rate that the threshold aims at
-- tried: how much was tried, and in how many runs; null where no lineage entry says so
-- planned: whether it was planned beforehand; null where no lineage entry says when it was done
-- audited_at: when its numbers were ready
-- section: number of its evidence in this report; null where it has none
-- lineage: number of the lineage entry behind it, in this report
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
