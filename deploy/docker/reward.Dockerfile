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
RUN groupadd --gid 10002 headrace-reward \
    && useradd --uid 10002 --gid 10002 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin headrace-reward
# The sandbox of code rewards.
RUN --mount=type=cache,target=/var/cache/apt,sharing=locked --mount=type=cache,target=/var/lib/apt,sharing=locked \
    rm -f /etc/apt/apt.conf.d/docker-clean \
    && apt-get update -qq && apt-get install -qq --yes --no-install-recommends bubblewrap > /dev/null
RUN --mount=type=bind,from=wanted,source=/wanted/reward.txt,target=/wanted/reward.txt \
    --mount=type=bind,source=constraints.txt,target=/src/constraints.txt \
    --mount=type=cache,target=/root/.cache/pip,sharing=locked \
    pip --python venv install --quiet -c /src/constraints.txt -r /wanted/reward.txt \
    && find venv -type d -name tests -prune -print0 | xargs -0r rm -rf
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel \
    pip --python venv install --quiet --no-deps --no-index /wheel/*.whl
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="headrace-reward" \
      org.opencontainers.image.description="Scores rollouts" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
ENV HOME=/tmp
USER 10001:10001
EXPOSE 7000 8080
HEALTHCHECK --interval=15s --timeout=10s --start-period=60s --retries=4 CMD ["python", "-P", "-m", "headrace.wire.process.probe"]
ENTRYPOINT ["python", "-P", "-m", "headrace.services.reward"]
CMD ["--config", "/runs/demo/config/reward.json"]
