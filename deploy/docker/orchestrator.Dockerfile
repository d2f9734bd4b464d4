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
# A volume that is first mounted here belongs to the service's user: those of docker-compose.yml.
RUN install -d -o 10001 -g 10001 /state/broker /state/hub /state/grafana /state/grafana-data /state/prometheus-data \
    /state/tokens/trainer /state/tokens/rollout /state/tokens/reward /state/tokens/environment /state/tokens/orchestrator \
    /state/tokens/user /state/vault
# `tls`: `setup` makes certificates. What is removed of pyarrow are clients of services that no code here talks to.
RUN --mount=type=bind,from=wanted,source=/wanted/orchestrator.txt,target=/wanted/orchestrator.txt \
    --mount=type=bind,from=wanted,source=/wanted/tls.txt,target=/wanted/tls.txt \
    --mount=type=bind,source=constraints.txt,target=/src/constraints.txt \
    --mount=type=cache,target=/root/.cache/pip,sharing=locked \
    pip --python venv install --quiet -c /src/constraints.txt -r /wanted/orchestrator.txt -r /wanted/tls.txt \
    && find venv -type d -name tests -prune -print0 | xargs -0r rm -rf \
    && cd venv/lib/python3*/site-packages && rm -rf hf_xet* pyarrow/include pyarrow/*flight* pyarrow/*s3*
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel \
    pip --python venv install --quiet --no-deps --no-index /wheel/*.whl
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="headrace-orchestrator" \
      org.opencontainers.image.description="Issues prompts, publishes weights, shows the run" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# Readable for uid 10001, whatever the umask of the checkout.
COPY --chmod=644 deploy/compose/setup.py /opt/headrace/setup.py
ENV HOME=/tmp
USER 10001:10001
EXPOSE 7000 8080
HEALTHCHECK --interval=15s --timeout=10s --start-period=60s --retries=4 CMD ["python", "-P", "-m", "headrace.wire.process.probe"]
ENTRYPOINT ["python", "-P", "-m", "headrace.services.orchestrator"]
CMD ["--config", "/runs/demo/config/orchestrator.json"]
