# Two commands for a fresh machine: `make demo` and `make test`. Both can be run again at once.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check
RUN := OMP_NUM_THREADS=1 $(BIN)/mezzotint

DEMO := results/runs/demo
SYSTEMS := vanilla,pinecone,nirvana,modm-throughput

.PHONY: demo test lint docs notebooks results bench scorecard release lock clean links

# The main job on the built-in trace: four systems at six request rates on 16 MI210, then the report.
demo: $(VENV)/base.stamp
	rm -rf $(DEMO)
	$(RUN) run -m system=$(SYSTEMS) arrivals.rate_rpm=6,10,14,18,22,26 trace.requests=4000 preload=2000 run.dir=$(DEMO)
	$(RUN) report $(DEMO)

# It notes which branches the tests take, at little cost, and fails where they take less than 95 % of sim's. Those that
# none takes: `.venv/bin/python -m tests.branches sim`.
test: $(VENV)/test.stamp
	mkdir -p .coverage
	OMP_NUM_THREADS=1 $(BIN)/python -m slipcover -m pytest -n 2 --dist worksteal --benchmark-disable
	$(BIN)/python -m tests.branches

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry backends conf mezzotint sim traces
	$(BIN)/deptry tests docs notebooks results --exclude '\.venv' --ignore DEP002,DEP004
	$(BIN)/towncrier build --draft --version next

# The documentation site, into build/docs, without network; a warning is an error. Links to results/ and the pages
# at the top hold in the repository and, a folder nearer, in the copy that the site is built from.
docs: $(VENV)/docs.stamp notebooks
	rm -rf build/pages build/docs
	mkdir -p build/pages/results
	cp -R build/notebooks build/pages
	rm build/pages/notebooks/made
	cp -R docs/. CHANGELOG.md CONTRIBUTING.md build/pages
	cp results/*.* build/pages/results
	$(BIN)/python -m docs.reference.make build/pages/reference
	find build/pages -name '*.py' -delete -o -name '*.pyc' -delete
	find build/pages -name '*.md' -exec sed -E -i.before \
		-e 's#\]\(((\.\./)*)\.\./(results/|CHANGELOG|CONTRIBUTING)#](\1\3#g' -e 's#\]\(docs/#](#g' {} +
	find build/pages -name '*.before' -delete
	$(BIN)/zensical build --clean --strict

# Every notebook executed, as a page with its figures: minutes. After a change of the simulator, `make -B notebooks`.
notebooks: build/notebooks/made

build/notebooks/made: $(wildcard notebooks/*.py) results/hardware.json | $(VENV)/docs.stamp
	OMP_NUM_THREADS=1 $(BIN)/python notebooks/make.py build/notebooks
	touch $@

# The pages and figures of results/ from the numbers beside them, and the pictures of docs/: less than a minute. What
# they were made from has changed if git shows a difference.
results: $(VENV)/base.stamp
	$(BIN)/python -m results.make
	OMP_NUM_THREADS=1 $(BIN)/python -m docs.pictures.make
	$(BIN)/python docs/systems/make.py

# What is timed, at full size; writes results/benchmarks.md.
bench: $(VENV)/test.stamp
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.benchmarks

# The papers' numbers and ours, in full; writes results/scorecard.{md,json} and figures. Finished runs are kept.
scorecard: $(VENV)/test.stamp
	$(RUN) reproduce --jobs $$(nproc)

# An sdist and a wheel, in dist; each is installed into a new environment outside the clone, and used there.
release: $(VENV)/test.stamp
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(BIN)/python -m tests.release

# What was tested together, a file per purpose, for every supported Python; `make lock UPGRADE=--upgrade` takes the newest.
# Not pylock.toml, which pip cannot install from yet, nor uv.lock, which it cannot read. The files are pip's constraints, not
# its requirements, and have no hashes: so torch may come from an index of its own, without several GB of CUDA packages.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11.5 --no-annotate $(UPGRADE) \
	--custom-compile-command 'make lock' pyproject.toml

lock: $(VENV)/test.stamp
	$(COMPILE) --extra test --output-file requirements/test.txt
	$(COMPILE) --constraint requirements/test.txt --output-file requirements/base.txt
	$(COMPILE) --constraint requirements/test.txt --extra docs --output-file requirements/docs.txt

clean:
	rm -rf $(VENV) build dist results/runs .coverage

# The folders at the top are the parts of one package: here they are where tools that read files look for them.
links:
	for part in backends conf sim traces; do ln -sfn ../$$part mezzotint/$$part; done

$(VENV)/base.stamp: pyproject.toml setup.py requirements/base.txt | links
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --constraint requirements/base.txt --editable .
	touch $@

# With what the tests need: the reference reads every class, the live backend's too, and the site shows the notebooks.
$(VENV)/docs.stamp: $(VENV)/test.stamp requirements/docs.txt
	$(PIP) --constraint requirements/docs.txt --constraint requirements/test.txt --editable '.[docs,test]'
	touch $@

$(VENV)/test.stamp: $(VENV)/base.stamp requirements/test.txt
	$(PIP) --constraint requirements/test.txt --editable '.[test]'
	touch $@
