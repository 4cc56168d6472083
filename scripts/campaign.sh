#!/usr/bin/env bash
# Train the most valuable missing runs beside other work, with the code of the last commit.
#   scripts/campaign.sh start|stop|collect      (`make campaign`; variables: see the Makefile)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

store=${STORE:-results}
store=${store%/}
shards=build/campaign/parts
[[ $store == results ]] || shards=build/campaign/parts-of/$store
python=.venv/bin/python
fail() { echo "oso: error: $*" >&2 && exit 2; }
mkdir -p "$shards/.progress"
exec 8>> "$shards/.progress/at-work"  # locked while a campaign plans or trains

start() {
    local name commit checkout plans pid code status=0 missing=() pids=() options=()
    [[ $PROCESSES =~ ^[1-9][0-9]?$ ]] || fail "PROCESSES=$PROCESSES; must be an integer from 1 to 99"
    flock --nonblock 8 || fail "STORE=$store: a campaign for it is running; make campaign-stop ends it"
    rm -f "$shards/.progress/stop"
    commit=$(git rev-parse --short=12 HEAD)
    checkout=build/campaign/checkouts/$commit plans=build/campaign/plans/$commit
    [[ -z $(git status --porcelain -- src config) ]] || echo "ignored: uncommitted changes in src/ or config/"
    exec 9> build/campaign/.starting  # campaigns for two stores share checkouts and plans
    flock 9
    [[ -e $checkout/.git ]] || { git worktree prune && git worktree add --quiet --detach "$checkout" "$commit"; }
    export PYTHONPATH=$PWD/$checkout/src OMP_WAIT_POLICY=PASSIVE
    for name in $PLANS; do
        [[ -e $checkout/config/$name.yaml ]] || fail "PLANS: $name; no config/$name.yaml in commit $commit"
        [[ -e $plans/$name.json ]] || missing+=("$name")
        # A file without an entry for the plans is an error.
        if grep -q "\"${name##*/}\"" "$checkout/config/priorities.toml"; then
            options=(--priorities "$checkout/config/priorities.toml")
        fi
    done
    set -f  # do not expand the patterns of FILTER
    options+=(--minutes "$MINUTES" --results "$shards" --prepare --skip-missing ${DATA_DIR:+--data-dir "$DATA_DIR"})
    if [[ -e $store/runs.parquet ]]; then options+=(--existing "$store"); fi
    options+=(--threads "$((($(nproc) + PROCESSES - 1) / PROCESSES))" ${FILTER:+--filter $FILTER} --plan)
    "$python" -m oso_dp.scheduler "${options[@]}" x --help > /dev/null  # check the options before minutes of planning
    printf '%s\n' ${missing[@]+"${missing[@]}"} | xargs -r -P "${CORES:-2}" -I{} \
        "$python" -m oso_dp plan --config "$checkout/config/{}.yaml" --output "$plans/{}.json"
    exec 9>&-
    for name in $PLANS; do options+=("$plans/$name.json"); done
    trap 'touch "$shards/.progress/stop"' INT TERM
    while ((${#pids[@]} < PROCESSES)); do
        # In a session of its own: Linux shares the CPU among sessions first.
        setsid nice -n "$NICE" bash -c '{ echo "$0" > /proc/self/autogroup; } 2> /dev/null; exec "$@"' "$NICE" \
            "$python" -m oso_dp.scheduler ${pids:+--quiet} "${options[@]}" &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        while code=0; wait "$pid" || code=$?; kill -0 "$pid" 2> /dev/null; do :; done  # a trap ends `wait` early
        if ((code > status)); then status=$code; fi
    done
    exit "$status"
}

stop() {
    until flock --timeout 0.5 8; do touch "$shards/.progress/stop"; done
    echo "$shards: stopped, no process is training"
}

collect() {
    shopt -s nullglob
    local found=("$shards"/*/)
    if ((${#found[@]} == 0)); then echo "$shards: no complete runs yet" && exit; fi
    exec "$python" -m oso_dp collect "${found[@]}" --store "$store"
}

case "${1:-}" in start | stop | collect) "$1" ;; *) fail "usage: scripts/campaign.sh start|stop|collect" ;; esac
