# The commands of the README. `make help` lists them; the study itself lives in the Snakefile.

PYTHON ?= python3
CORES ?= 2
# A folder that already holds the official data files, by preference to downloading them.
DATA_DIR ?=
# Of a campaign (docs/campaign.md).
MINUTES ?= 60
PROCESSES ?= $(CORES)
NICE ?= 19
PLANS ?= spotcheck controls defaults defaults_falling defaults_averaged linear_scaling no_search no_search_falling ag_news_partial ag_news_partial_beyond ag_news_partial_controls ag_news_partial_stopping ag_news_partial_stopping_geometric ag_news_partial_stopping_poisson mnist_stopping_poisson linear_scaling_mnist paper
ONLY ?=
# Where its runs are collected; another choice of the paper's open points has a store of its own.
STORE ?= results
# For `make mutants`: options of pytest, such as -k 'private and noise'; the first of each ONE_IN faults.
MUTANTS ?=
ONE_IN ?= 1
# For `make mutation`: which, how many, how long (tests/mutation/sampled/__main__.py).
MUTATION ?=
# For `make precisions`: of which data sets (all).
PAIRS ?=

# What stands between single quotes in a shell.
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
# moved or copied checkout, and a .venv whose Python has gone are all seen, and .venv is made anew.
READY := $(VENV)/.ready
# A .venv that somebody else made, as by the README's lines, is never cleared: it has neither mark.
OURS := $(VENV)/.made-by-make
THEIRS := $(VENV)/.made-by-hand
INTACT := $(shell test "$$(cat $(READY) 2>/dev/null)" = '$(call quoted,$(CURDIR))' \
	&& $(VENV)/bin/python -c '' 2>/dev/null && echo yes)
FOREIGN := $(shell test -e $(THEIRS) \
	|| { test -n "$$(ls -A $(VENV) 2>/dev/null)" && ! test -e $(OURS) -o -e $(READY); } && echo yes)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slurm lint mutants mutation faults versions docs audit bench step-times precisions account verify artifact report cosine signs spotcheck paper campaign \
	campaign-pause campaign-resume campaign-stop collect clean FORCE

help: ## List these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile \
		| awk -F '|' '{ printf "%-24s %s\n", $$1, $$2 }'
	@echo
	@echo '  Of campaign: MINUTES=$(MINUTES)  PROCESSES=$(PROCESSES)  NICE=$(NICE)  PLANS="$(PLANS)"  ONLY=<METHOD/DATASET ...>'
	@echo '  Variables: CORES=$(CORES)  PYTHON=$(PYTHON)  DATA_DIR=<folder with the official data files>'

setup: $(READY) ## Make .venv and install everything into it

demo: $(READY) ## Run the whole study in miniature, on digits made on the spot (a few minutes)
	$(STUDY) --configfile config/demo.yaml
	@$(IN_VENV) oso summary --results build/demo/results --report reports/demo/index.html

test: $(READY) ## Run the tests, on CORES cores
	$(IN_VENV) pytest --numprocesses $(CORES) --dist worksteal

test-slurm: $(READY) ## Run the smallest study on a real Slurm, installed and started here (root, Debian)
	$(IN_VENV) OSO_TEST_SLURM=1 pytest tests/slurm

lint: $(READY) ## Check style, types, the workflow and the direction of imports
	$(IN_VENV) ruff check .
	$(IN_VENV) ruff format --check .
	$(IN_VENV) mypy src
	$(IN_VENV) lint-imports --no-logo
	$(IN_VENV) snakefmt --check Snakefile workflow/rules
	$(IN_VENV) snakemake --lint

mutants: $(READY) ## Plant faults in the privacy code one by one, and see the tests catch each
	$(IN_VENV) ONE_IN=$(ONE_IN) pytest --numprocesses $(CORES) --dist worksteal -m planted_fault \
		tests/mutation/curated $(MUTANTS)

mutation: $(READY) ## Change the code mechanically, ten minutes long, and see the tests catch that
	$(IN_VENV) python tests/mutation/sampled $(MUTATION)

faults: $(READY) ## Give every reader its long list of spoiled inputs, and stores every fault (long)
	$(IN_VENV) OSO_TEST_ROUNDS=100 pytest --numprocesses $(CORES) tests/robustness tests/data/test_broken_downloads.py tests/results

versions: $(READY) ## Try the package with the lowest and the highest versions it allows (ten minutes, network)
	$(IN_VENV) python tests/versions

docs: $(READY) ## Make the documentation's site in build/site; a broken link fails
	$(IN_VENV) mkdocs build --strict

audit: $(READY) ## Attack the paper's private methods and HyFreeDP, and see that planted faults are found
	$(IN_VENV) oso audit --faults

bench: $(READY) ## Measure steps and memory beside plain SGD, Opacus, torch.func and JAX
	$(IN_VENV) python benchmarks

step-times: $(READY) ## Measure Online's step beside FixedThreshold's, for claim C8 (5 minutes; stop all else first)
	$(IN_VENV) python benchmarks/step_times.py results/step_times.csv

precisions: $(READY) ## Train runs in float32 and bfloat16 with the same noise: what precision changes (an hour or more)
	$(IN_VENV) python benchmarks/precisions.py --processes $(CORES) $(PAIRS)

verify: $(READY) ## Train a random sample of the stored runs again, for five minutes, and compare (VERIFY='--seed 7')
	$(IN_VENV) oso verify results --data build/data $(if $(DATA_DIR),--data-dir '$(call quoted,$(DATA_DIR))') $(VERIFY)

artifact: $(READY) ## Pack this commit with its results, checksums and metadata into one archive, for a DOI
	$(IN_VENV) python scripts/artifact.py

account: $(READY) ## Recompute the epsilon of every grid in results/ from its ledgers
	$(IN_VENV) oso account results

report: $(READY) ## Make reports/ again from results/, with what pages say of it
	$(IN_VENV) oso report --results results --output reports
	$(IN_VENV) python -m oso_dp.reporting.written README.md docs/findings.md results/README.md docs/choosing.md --results results

cosine: $(READY) ## Compare true and sanitized gradients in one run: the data of Figure 1 (an hour)
	$(STUDY) --configfile config/headline.yaml -- cosine
	cp build/headline/cosine.csv results/.cosine.csv && mv results/.cosine.csv results/cosine.csv

signs: $(READY) ## Follow the signs that move C and rho, with and without noise (a quarter of an hour)
	$(STUDY) --configfile config/signs.yaml -- signs
	cp build/signs/signs.csv results/.signs.csv && mv results/.signs.csv results/signs.csv

spotcheck: $(READY) ## Train only the best settings that the paper reports (days)
	$(STUDY) --configfile config/spotcheck.yaml

paper: $(READY) ## Train the paper's whole grid (months; on a cluster)
	$(STUDY) --configfile config/paper.yaml

campaign: $(READY) ## Train what is worth most, beside other work, for MINUTES; resumes after any kill
	@MINUTES='$(call quoted,$(MINUTES))' PROCESSES='$(call quoted,$(PROCESSES))' \
		NICE='$(call quoted,$(NICE))' PLANS='$(call quoted,$(PLANS))' ONLY='$(call quoted,$(ONLY))' \
		DATA_DIR='$(call quoted,$(DATA_DIR))' STORE='$(call quoted,$(STORE))' scripts/campaign start

# Nothing is installed for these: a campaign is at work in that environment.
campaign-pause campaign-resume campaign-stop: campaign-%:
	@STORE='$(call quoted,$(STORE))' scripts/campaign $*

campaign-pause: ## Let all its processes wait, and return once the last one does
campaign-resume: ## Let them go on
campaign-stop: ## End them; complete runs are kept, and the others go on from their checkpoints

collect: $(READY) ## Add the campaign's complete runs to results/, also while it works
	@STORE='$(call quoted,$(STORE))' scripts/campaign collect

clean: ## Remove build/, and nothing else; not the only record of runs on data that are not public
	@STORE='$(call quoted,$(STORE))' scripts/clean

$(READY): requirements.in requirements.lock pyproject.toml $(if $(INTACT),,FORCE)
ifeq ($(ALONE),)
ifneq ($(INTACT),yes)
	@command -v '$(PYTHON)' >/dev/null \
		|| { echo 'Python 3.11 or newer is needed, but there is no "$(PYTHON)": name another one, as in make setup PYTHON=python3.12' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("Python 3.11 or newer is needed, but \"$(PYTHON)\" is %d.%d: name another one, as in make setup PYTHON=python3.12" % v[:2])'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo 'The venv module of "$(PYTHON)" is missing: install it (on Debian and Ubuntu: apt install python3-venv)' >&2; exit 1; }
ifeq ($(FOREIGN),yes)
	@$(VENV)/bin/python -c '' 2>/dev/null && grep -qF '$(call quoted,$(CURDIR)/$(VENV))' $(VENV)/bin/activate 2>/dev/null \
		|| { echo '$(VENV) was not made by make, and does not work in this folder: move it away, then make setup makes another' >&2; exit 1; }
endif
endif
	@$(PYTHON) scripts/alone .setup.lock $(MAKE) --silent --no-print-directory ALONE=yes $(READY)
else
ifneq ($(INTACT),yes)
ifeq ($(FOREIGN),yes)
	@touch $(THEIRS)
	@echo '[1/4] Using the $(VENV) that is there'
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
