"""The public format of the two results tables.

Column names are a promise: others read these files. A value that does not apply is null.
The format's version is stored in each file's metadata and checked when it is read; what an older
version lacks is null then. What a column may hold says oso_dp.results.checks.
"""

import pyarrow as pa

from oso_dp.study.identity import USER_OPTIONS

SCHEMA_VERSION = "6"
_METADATA = {"oso_schema_version": SCHEMA_VERSION}

RUNS = pa.schema(
    [
        ("run_id", pa.string()),  # hash of all that the configuration decides of the run
        ("dataset", pa.string()),
        ("method", pa.string()),
        ("k", pa.int64()),  # grid values per log-uniform hyperparameter
        ("epsilon", pa.float64()),  # budget of the whole grid; null for no_dp
        ("delta", pa.float64()),
        # How the search is accounted for: composition, random_stopping, single, linear_scaling.
        ("search_accounting", pa.string()),
        ("seed", pa.int64()),
        ("learning_rate", pa.float64()),  # starting value of rho
        ("threshold", pa.float64()),  # starting value of C
        ("quantile", pa.float64()),  # gamma
        ("momentum", pa.float64()),
        ("noise_multiplier", pa.float64()),  # nu: what one step costs, all its queries together
        ("query_noise_multiplier", pa.float64()),  # nu_q (online) or of the count (fixed_quantile)
        ("sampling", pa.string()),
        ("examples", pa.int64()),  # n: examples, or users where these are the unit
        ("batch_size", pa.int64()),  # expected size of a Poisson batch
        ("epochs", pa.int64()),
        ("steps", pa.int64()),  # T as planned
        ("precision", pa.string()),  # of products: float32, tf32 or bfloat16
        # The options of the run.
        ("model", pa.string()),
        ("method_options", pa.string()),  # name=value, by name, separated by a comma and a space
        ("grid_runs", pa.int64()),  # N: runs that the budget covers; see oso_dp.study.cohort
        ("evaluate_every", pa.int64()),  # steps
        ("final_activation", pa.bool_()),
        ("loss", pa.string()),  # reduction over the pixels of an image: mean or sum
        ("oov_words", pa.string()),  # texts: out-of-vocabulary words, zeros or skipped
        ("vocabulary", pa.string()),  # texts: of word vectors; null for the data set's default
        ("randomness", pa.string()),  # seeded or system
        ("stopping_distribution", pa.string()),  # of the number of runs under random stopping
        ("schedule", pa.string()),  # of the learning rate: linear; null: constant
        ("averaging", pa.float64()),  # decay of the parameter average; null: last iterate
        ("stage", pa.string()),  # linear scaling: trial 1, trial 2, ..., final
        ("trial_fractions", pa.string()),  # linear scaling: of epsilon, separated as above
        ("data_version", pa.string()),  # user-defined data sets: as declared
        ("budget_runs", pa.int64()),  # runs that share the epsilon of private data
        ("unit", pa.string()),  # of privacy: user; null: example
        # What a user computes in a step, as method_options; null where an example is the unit.
        ("local", pa.string()),
        ("rng_version", pa.int64()),  # scheme by which batches and noise are drawn
        ("status", pa.string()),  # finished or diverged
        ("diverged_at", pa.int64()),  # step
        ("device", pa.string()),  # model of the CPU or GPU; a CPU's instructions, number of threads
        ("commit", pa.string()),  # of the code; ends in -dirty if it was changed; null if unknown
        ("torch_version", pa.string()),
        ("package_version", pa.string()),
        ("code_hash", pa.string()),
        ("wall_seconds", pa.float64()),
        ("ledger", pa.string()),  # JSON: what the mechanism released, see oso_dp.privacy.ledger
    ],
    metadata=_METADATA,
)

EVALUATIONS = pa.schema(
    [
        ("run_id", pa.string()),
        ("step", pa.int64()),
        ("split", pa.string()),  # one of SPLITS
        ("metric", pa.string()),  # accuracy in [0, 1], or mse per pixel
        ("value", pa.float64()),
        ("loss", pa.float64()),
        ("threshold", pa.float64()),  # C_t
        ("learning_rate", pa.float64()),  # rho_t, before the factor of a schedule
        ("fraction_clipped", pa.float64()),  # as sanitized; null where the method does not ask
        # Of each class in order, null for one that is not in the split; null where the metric is
        # no accuracy, and in rows of versions before 3.
        ("class_accuracy", pa.list_(pa.float64())),
    ],
    metadata=_METADATA,
)

SPLITS = ("test", "test_even", "test_odd")
SCHEMAS = {"runs": RUNS, "evaluations": EVALUATIONS}
# The columns that a version added, by table; its others are those of the version before.
ADDED: dict[str, dict[str, tuple[str, ...]]] = {
    "3": {"evaluations": ("class_accuracy",)},
    "6": {"runs": USER_OPTIONS},
}
VERSIONS = {"runs": ("5", "6"), "evaluations": ("1", "2", "3", "4", "5", "6")}  # that are read

# Columns of few texts, each of which stands in many rows: read as dictionaries, in half the time.
REPEATED = {"runs": [], "evaluations": ["run_id", "split", "metric"]}
KEYS = {"runs": ["run_id"], "evaluations": ["run_id", "step", "split"]}


def schema_of(kind: str, version: str) -> pa.Schema:
    """The columns of `kind` that one of `VERSIONS` has."""
    later = [added.get(kind, ()) for since, added in ADDED.items() if since > version]
    absent = {name for names in later for name in names}
    return pa.schema([field for field in SCHEMAS[kind] if field.name not in absent])
