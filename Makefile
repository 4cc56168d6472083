# The commands of the README. `make help` lists them; the study itself lives in the Snakefile.

PYTHON ?= python3
CORES ?= 2
# A folder with the official data files, used instead of downloads.
DATA_DIR ?=
# Of a campaign (docs/internals/running_at_scale.md).
MINUTES ?= 60
PROCESSES ?= $(CORES)
NICE ?= 19
PLANS ?= paper/best_points ablations/controls extensions/defaults extensions/defaults_linear_decay extensions/defaults_averaged extensions/linear_scaling extensions/untuned extensions/untuned_linear_decay paper/ag_news_subset extensions/ag_news_subset_other_methods ablations/ag_news_subset_controls extensions/ag_news_subset_random_stopping extensions/ag_news_subset_random_stopping_geometric extensions/ag_news_subset_random_stopping_poisson extensions/mnist_random_stopping_poisson extensions/linear_scaling_mnist paper
ONLY ?=
# Where its runs are collected; studies of ambiguities in the paper have separate stores.
STORE ?= results
# For `make planted-faults`: options of pytest, such as -k 'private and noise'; the first of each ONE_IN faults.
MUTANTS ?=
ONE_IN ?= 1
# For `make mutation-sample`: which, how many, how long (tests/mutation/sampled/__main__.py).
MUTATION ?=
# For `make bench-precision`: data sets (default: all).
PAIRS ?=

# Escapes text for single quotes in a shell.
quoted = $(subst ','\'',$(1))

VENV := .venv
# Set while this make holds the lock under which one at a time installs.
ALONE ?=
# Activated inside each recipe, never exported: python3 must stay the system's while .venv is made.
IN_VENV := . $(VENV)/bin/activate &&
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check
TORCH := $(shell sed -n '/^torch==/p' requirements.in)
STUDY = $(IN_VENV) snakemake --cores $(CORES) $(if $(DATA_DIR),--config 'data_dir=$(call quoted,$(DATA_DIR))')

# A study, or its tests, starts hundreds of processes. Where the environment forbids Python to keep what
# it compiles, as containers often do, every one of them would compile all packages again: 10 s each.
unexport PYTHONDONTWRITEBYTECODE

# $(READY) is written last and holds the folder it was made in. So an interrupted installation, a
# moved or copied checkout, and a .venv whose Python is gone are detected, and .venv is made again.
READY := $(VENV)/.ready
# A .venv that make did not create is never cleared; it has neither mark.
OURS := $(VENV)/.made-by-make
THEIRS := $(VENV)/.made-by-hand
INTACT := $(shell test "$$(cat $(READY) 2>/dev/null)" = '$(call quoted,$(CURDIR))' \
	&& $(VENV)/bin/python -c '' 2>/dev/null && echo yes)
FOREIGN := $(shell test -e $(THEIRS) \
	|| { test -n "$$(ls -A $(VENV) 2>/dev/null)" && ! test -e $(OURS) -o -e $(READY); } && echo yes)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-nightly test-slurm lint planted-faults mutation-sample fuzz test-dependency-range notebooks docs audit \
	bench bench-step-time bench-precision account verify artifact report diagnose-cosine diagnose-signs paper-best paper \
	campaign campaign-stop collect clean FORCE

help: ## List these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile \
		| awk -F '|' '{ printf "%-28s %s\n", $$1, $$2 }'
	@echo
	@echo '  Of campaign: MINUTES=$(MINUTES)  PROCESSES=$(PROCESSES)  NICE=$(NICE)  PLANS="$(PLANS)"  ONLY=<METHOD/DATASET ...>'
	@echo '  Variables: CORES=$(CORES)  PYTHON=$(PYTHON)  DATA_DIR=<folder with the official data files>'

setup: $(READY) ## Create .venv and install everything into it

demo: $(READY) ## Run a small study end to end on synthetic digits (a few minutes)
	$(STUDY) --configfile config/demo.yaml
	@$(IN_VENV) oso summary --results build/demo/results --report reports/demo/index.html

test: $(READY) ## Run the tests, on CORES cores
	$(IN_VENV) pytest --numprocesses $(CORES) --dist worksteal

test-nightly: $(READY) ## Run the tests that `make test` leaves to the night (a few minutes)
	$(IN_VENV) pytest --numprocesses $(CORES) --dist worksteal -m nightly

test-slurm: $(READY) ## Run the smallest study on a Slurm cluster that this target installs (root, Debian)
	$(IN_VENV) OSO_TEST_SLURM=1 pytest tests/slurm

lint: $(READY) ## Check style, types, the workflow and the import layers
	$(IN_VENV) ruff check .
	$(IN_VENV) ruff format --check .
	$(IN_VENV) mypy src
	$(IN_VENV) lint-imports --no-logo
	$(IN_VENV) snakefmt --check Snakefile workflow/rules workflow/pate.smk
	$(IN_VENV) snakemake --lint
	$(IN_VENV) snakemake --lint --snakefile workflow/pate.smk

planted-faults: $(READY) ## Plant each curated fault in the code and check that a test catches it
	$(IN_VENV) ONE_IN=$(ONE_IN) pytest --numprocesses $(CORES) --dist worksteal -m planted_fault \
		tests/mutation/curated $(MUTANTS)

mutation-sample: $(READY) ## Run the tests against a random sample of mutants (ten minutes)
	$(IN_VENV) python tests/mutation/sampled $(MUTATION)

fuzz: $(READY) ## Run the fuzz tests of all readers and of the results store (long)
	$(IN_VENV) OSO_TEST_ROUNDS=100 pytest --numprocesses $(CORES) tests/fuzz tests/data/test_download.py tests/results

test-dependency-range: $(READY) ## Test the lowest and the highest allowed dependencies (ten minutes, network)
	$(IN_VENV) python tests/versions

notebooks: $(READY) ## Run the notebooks of examples/ again, in place (five minutes, network)
	$(IN_VENV) pip install --quiet -r examples/requirements.txt
	$(IN_VENV) jupyter execute --inplace examples/*.ipynb

docs: $(READY) ## Build the documentation site in build/site; a broken link fails
	$(IN_VENV) mkdocs build --strict

audit: $(READY) ## Audit the private methods empirically, with and without planted faults
	$(IN_VENV) oso audit --faults
	for model in dropout tied augmentations users; do $(IN_VENV) oso audit --faults --method online --model $$model || exit 1; done

bench: $(READY) ## Measure step time and memory against plain SGD, Opacus, torch.func and JAX
	$(IN_VENV) python benchmarks

bench-step-time: $(READY) ## Measure the step times of claim C8 (5 minutes on an idle machine)
	$(IN_VENV) python benchmarks/step_times.py results/step_times.csv

bench-precision: $(READY) ## Train pairs of runs in float32 and bfloat16 (an hour or more)
	$(IN_VENV) python benchmarks/precisions.py --processes $(CORES) $(PAIRS)

verify: $(READY) ## Retrain a random sample of stored runs and compare (five minutes)
	$(IN_VENV) oso verify results --data build/data $(if $(DATA_DIR),--data-dir '$(call quoted,$(DATA_DIR))') $(VERIFY)

artifact: $(READY) ## Pack this commit with checksums and metadata into one archive, for a DOI
	$(IN_VENV) python scripts/artifact.py

account: $(READY) ## Recompute epsilon of every grid in results/ from its ledgers
	$(IN_VENV) oso account results

report: $(READY) ## Regenerate reports/ and the generated blocks of the pages from results/
	$(IN_VENV) oso report --results results --output reports
	$(IN_VENV) python -m oso_dp.reporting.update_docs README.md docs/reproduction/findings.md results/README.md docs/user/choosing_a_method.md --results results

diagnose-cosine: $(READY) ## Compare true and sanitized gradients: the data of Figure 1 (an hour)
	$(STUDY) --configfile config/headline.yaml -- cosine
	cp build/headline/cosine.csv results/.cosine.csv && mv results/.cosine.csv results/cosine.csv

diagnose-signs: $(READY) ## Record the signs that update C and rho, with and without noise (15 minutes)
	$(STUDY) --configfile config/ci/adaptation_signs.yaml -- signs
	cp build/adaptation_signs/adaptation_signs.csv results/.signs.csv && mv results/.signs.csv results/adaptation_signs.csv

paper-best: $(READY) ## Train only the grid points that the paper reports as best (days)
	$(STUDY) --configfile config/paper/best_points.yaml

paper: $(READY) ## Train the paper's whole grid (months; on a cluster)
	$(STUDY) --configfile config/paper.yaml

campaign: $(READY) ## Train the most valuable missing runs at low priority for MINUTES; resumes when restarted
	@MINUTES='$(call quoted,$(MINUTES))' PROCESSES='$(call quoted,$(PROCESSES))' \
		NICE='$(call quoted,$(NICE))' PLANS='$(call quoted,$(PLANS))' FILTER='$(call quoted,$(ONLY))' \
		DATA_DIR='$(call quoted,$(DATA_DIR))' STORE='$(call quoted,$(STORE))' CORES='$(call quoted,$(CORES))' \
		scripts/campaign.sh start

# Nothing is installed here: a running campaign uses that environment.
campaign-stop: ## Stop the campaign; complete runs are kept, others resume from checkpoints
	@STORE='$(call quoted,$(STORE))' scripts/campaign.sh stop

collect: $(READY) ## Add the campaign's complete runs to results/, also while it runs
	@STORE='$(call quoted,$(STORE))' scripts/campaign.sh collect

clean: ## Remove build/, unless it has the only record of runs on private data
	@STORE='$(call quoted,$(STORE))' scripts/clean.sh

$(READY): requirements.in requirements.lock pyproject.toml $(if $(INTACT),,FORCE)
ifeq ($(ALONE),)
ifneq ($(INTACT),yes)
	@command -v '$(PYTHON)' >/dev/null \
		|| { echo 'PYTHON: $(PYTHON); no such program; must be Python 3.11 or newer, as in make setup PYTHON=python3.12' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("PYTHON: $(PYTHON); is Python %d.%d; must be 3.11 or newer, as in make setup PYTHON=python3.12" % v[:2])'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo 'PYTHON: $(PYTHON); its venv module is missing; install it (on Debian and Ubuntu: apt install python3-venv)' >&2; exit 1; }
ifeq ($(FOREIGN),yes)
	@$(VENV)/bin/python -c '' 2>/dev/null && grep -qF '$(call quoted,$(CURDIR)/$(VENV))' $(VENV)/bin/activate 2>/dev/null \
		|| { echo '$(VENV): not made by make, and does not work in this folder; move it away, then run make setup' >&2; exit 1; }
endif
endif
	@$(PYTHON) scripts/with_lock.py .setup.lock $(MAKE) --silent --no-print-directory ALONE=yes $(READY)
else
ifneq ($(INTACT),yes)
ifeq ($(FOREIGN),yes)
	@touch $(THEIRS)
	@echo '[1/4] Using the existing $(VENV)'
else
	@echo '[1/4] Making $(VENV)'
	@trap : INT TERM; $(PYTHON) -m venv --clear $(VENV); status=$$?; \
		mkdir -p $(VENV) && touch $(OURS) && exit $$status  # it clears the mark, too
endif
endif
	@rm -f $(READY)
	@echo '[2/4] Installing $(TORCH)'
	@$(PIP) install '$(TORCH)' --no-compile
	@echo '[3/4] Installing the packages of requirements.lock (some minutes)'
	@$(PIP) install --quiet --no-compile --require-hashes --no-deps --no-build-isolation --use-pep517 -r requirements.lock
	@echo '[4/4] Installing this package'
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@$(PIP) check
	@echo '$(call quoted,$(CURDIR))' > $(READY)
endif
