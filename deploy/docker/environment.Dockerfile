# The stages `wheel`, `wanted` and `core` are the same lines in every Dockerfile here: their layers are shared.
# Base images are arguments, so that a site can use mirrors of its own.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS wheel
WORKDIR /src
RUN --mount=type=bind,target=/src,rw --mount=type=cache,target=/root/.cache/pip,sharing=locked \
    pip wheel --quiet --no-deps --wheel-dir /wheel .

FROM ${PYTHON_IMAGE} AS wanted
WORKDIR /wanted
RUN --mount=type=bind,source=pyproject.toml,target=/src/pyproject.toml \
    --mount=type=bind,source=deploy/docker/requirements.py,target=/src/requirements.py \
    python3 /src/requirements.py /src/pyproject.toml /wanted

FROM ${PYTHON_IMAGE} AS core
RUN groupadd --gid 10001 headrace \
    && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin headrace \
    && install -d -o 10001 -g 10001 /runs \
    && python3 -m venv --without-pip /opt/headrace/venv
WORKDIR /opt/headrace
# Pools that spin cost several services on few cores most of their time; nothing is written outside of /runs and /tmp.
ENV PATH=/opt/headrace/venv/bin:$PATH PYTHONUNBUFFERED=1 \
    OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE MALLOC_ARENA_MAX=2 TOKENIZERS_PARALLELISM=false \
    ONEDNN_PRIMITIVE_CACHE_CAPACITY=128 TORCH_CPP_LOG_LEVEL=ERROR
RUN --mount=type=bind,from=wanted,source=/wanted/core.txt,target=/wanted/core.txt \
    --mount=type=bind,from=wanted,source=/wanted/tracing.txt,target=/wanted/tracing.txt \
    --mount=type=bind,source=constraints.txt,target=/src/constraints.txt \
    --mount=type=cache,target=/root/.cache/pip,sharing=locked \
    pip --python venv install --quiet -c /src/constraints.txt -r /wanted/core.txt -r /wanted/tracing.txt \
    && find venv -type d -name tests -prune -print0 | xargs -0r rm -rf

FROM core AS cpu
# The user of docker-compose.yml, which may write to its own folder of a run alone.
RUN groupadd --gid 10003 headrace-environment \
    && useradd --uid 10003 --gid 10003 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin headrace-environment
# The sandbox of environments and tools.
RUN --mount=type=cache,target=/var/cache/apt,sharing=locked --mount=type=cache,target=/var/lib/apt,sharing=locked \
    rm -f /etc/apt/apt.conf.d/docker-clean \
    && apt-get update -qq && apt-get install -qq --yes --no-install-recommends bubblewrap > /dev/null
RUN --mount=type=bind,from=wanted,source=/wanted/renderers.txt,target=/wanted/renderers.txt \
    --mount=type=bind,source=constraints.txt,target=/src/constraints.txt \
    --mount=type=cache,target=/root/.cache/pip,sharing=locked \
    pip --python venv install --quiet -c /src/constraints.txt -r /wanted/renderers.txt \
    && find venv -type d -name tests -prune -print0 | xargs -0r rm -rf \
    && rm -rf venv/lib/python3*/site-packages/hf_xet*
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel \
    pip --python venv install --quiet --no-deps --no-index /wheel/*.whl
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="headrace-environment" \
      org.opencontainers.image.description="Plays episodes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The advice: that there is no torch, which a tokenizer does not need.
ENV HOME=/tmp TRANSFORMERS_NO_ADVISORY_WARNINGS=1
USER 10001:10001
EXPOSE 7000 8080
HEALTHCHECK --interval=15s --timeout=10s --start-period=60s --retries=4 CMD ["python", "-P", "-m", "headrace.wire.process.probe"]
ENTRYPOINT ["python", "-P", "-m", "headrace.services.environment"]
CMD ["--config", "/runs/demo/config/environment.json"]

# With tasksets of `verifiers`, and the scripts of its harnesses, which an episode could not fetch.
FROM cpu AS verifiers
USER 0:0
RUN --mount=type=bind,from=wanted,source=/wanted/verifiers.txt,target=/wanted/verifiers.txt \
    --mount=type=bind,source=constraints.txt,target=/src/constraints.txt \
    --mount=type=cache,target=/root/.cache/pip,sharing=locked \
    pip --python venv install --quiet -c /src/constraints.txt -r /wanted/verifiers.txt \
    && find venv -type d -name tests -prune -print0 | xargs -0r rm -rf
ENV HEADRACE_HARNESS_DIR=/opt/headrace/harness
RUN for harness in null bash; do python -P -m headrace.services.environment.taskset.harness $harness || exit 1; done
USER 10001:10001
