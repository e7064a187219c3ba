-- Differences of a benchmark's two sides that are measured without a model. One row per benchmark.
--
-- label_source: origin of the labels; null: not recorded
-- controls: classifiers that use no model, by their input: words, characters, length or dates
-- matched: effect of matching the two sides, step by step
-- n: number of texts
-- strongest: true for the control with the highest AUROC
-- lineage: number of the ledger entry in this report
WITH controls AS (
    SELECT quality.benchmark, list({
        'name': quality.part, 'auroc': estimate(quality."value", quality.ci_low, quality.ci_high, quality.method),
        'n': quality.n, 'strongest': (quality.part = summary.worst_control) IS TRUE
    } ORDER BY list_position(['words', 'characters', 'length', 'dates'], quality.part), quality.part) AS controls
    FROM split_quality AS quality JOIN all_splits AS summary USING (benchmark)
    WHERE quality.measure = 'blind_auroc' AND quality.benchmark IN (SELECT benchmark FROM shown_pairs)
    GROUP BY ALL
), matched AS (
    SELECT benchmark, manifest -> 'matched' -> 'achieved' AS achieved, manifest ->> 'label_source' AS label_source
    FROM benchmarks
)
SELECT summary.benchmark, matched.label_source, summary.split_verdict,
    coalesce(controls.controls, []) AS controls,
    coalesce([{
        'name': step,
        'auroc': estimate(
            (achieved -> step ->> 'blind_auroc')::DOUBLE, (achieved -> step ->> 'ci_low')::DOUBLE,
            (achieved -> step ->> 'ci_high')::DOUBLE, achieved -> step ->> 'method'
        ),
        'n': (achieved -> step ->> 'n')::BIGINT
    } FOR step IN json_keys(achieved)], []) AS matched,
    summary.overlap_7, summary.overlap_13, summary.near_duplicate_pairs, summary.other_language_members,
    summary.other_language_nonmembers, summary.texts_members, summary.texts_nonmembers, summary.groups_members,
    summary.groups_nonmembers, summary.is_current, entries.number AS lineage
FROM all_splits AS summary SEMI JOIN shown_pairs ON shown_pairs.benchmark = summary.benchmark
LEFT JOIN controls ON controls.benchmark = summary.benchmark
LEFT JOIN matched ON matched.benchmark = summary.benchmark
LEFT JOIN entries ON entries."table" = 'split_quality' AND entries."partition" = summary.benchmark
    AND entries.run_id = summary.run_id
ORDER BY summary.benchmark;
