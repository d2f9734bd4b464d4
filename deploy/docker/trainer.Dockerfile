# The stages `wheel`, `wanted`, `core`, `torch` and `engine` are the same lines wherever they stand: their layers are shared.
# Base images are arguments, so that a site can use mirrors of its own.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm
ARG ENGINE_IMAGE=lmsysorg/sglang:v0.5.23-runtime

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

FROM core AS torch
# An index that has torch for CPUs alone, beside pip's own: the builds with CUDA are several GB larger.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN --mount=type=bind,from=wanted,source=/wanted/torch.txt,target=/wanted/torch.txt \
    --mount=type=bind,source=constraints.txt,target=/src/constraints.txt \
    --mount=type=cache,target=/root/.cache/pip,sharing=locked \
    pip --python venv install --quiet ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} \
       -c /src/constraints.txt -r /wanted/torch.txt \
    && find venv -type d -name tests -prune -print0 | xargs -0r rm -rf

FROM ${ENGINE_IMAGE} AS engine
RUN groupadd --gid 10001 headrace \
    && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin headrace \
    && install -d -o 10001 -g 10001 /runs /cache \
    && python3 -m venv --without-pip --system-site-packages /opt/headrace/venv \
    && mkdir -p /opt/engine/bin \
    && printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v python3)" > /opt/engine/bin/python \
    && chmod 755 /opt/engine/bin/python
WORKDIR /opt/headrace
# SGLang keeps the Python that it was built for (/opt/engine/bin/python); headrace has an environment of its own above it,
# with the engine's torch and NCCL: weights travel between equal builds. Kernels are compiled once, into /cache.
ENV PATH=/opt/headrace/venv/bin:$PATH PYTHONUNBUFFERED=1 \
    OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE MALLOC_ARENA_MAX=2 TOKENIZERS_PARALLELISM=false TORCH_CPP_LOG_LEVEL=ERROR \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
RUN --mount=type=bind,source=deploy/docker/engine.py,target=/src/docker/engine.py \
    /opt/engine/bin/python /src/docker/engine.py > engine.txt

FROM engine AS gpu
RUN --mount=type=bind,from=wanted,source=/wanted/core.txt,target=/wanted/core.txt \
    --mount=type=bind,from=wanted,source=/wanted/trainer.txt,target=/wanted/trainer.txt \
    --mount=type=bind,from=wanted,source=/wanted/cli.txt,target=/wanted/cli.txt \
    --mount=type=bind,from=wanted,source=/wanted/deepspeed.txt,target=/wanted/deepspeed.txt \
    --mount=type=bind,from=wanted,source=/wanted/qlora.txt,target=/wanted/qlora.txt \
    --mount=type=bind,from=wanted,source=/wanted/tracing.txt,target=/wanted/tracing.txt \
    --mount=type=bind,source=constraints.txt,target=/src/constraints.txt \
    --mount=type=bind,source=deploy/docker/engine.py,target=/src/docker/engine.py \
    --mount=type=cache,target=/root/.cache/pip,sharing=locked \
    cat /wanted/*.txt | grep -v '^torch' > /tmp/wanted.txt \
    && grep -vE '^(torch|triton|nvidia-)' /src/constraints.txt | cat engine.txt - > /tmp/pinned.txt \
    && /opt/engine/bin/python -m pip --python venv install --quiet -c /tmp/pinned.txt -r /tmp/wanted.txt \
    && rm /tmp/wanted.txt /tmp/pinned.txt && find venv -type d -name tests -prune -print0 | xargs -0r rm -rf \
    && venv/bin/python /src/docker/engine.py | diff engine.txt - \
    || { echo "torch or NCCL is no longer the engine image's own" >&2; exit 1; }
# More extras of headrace, such as `tensorboard,wandb`.
ARG EXTRAS=
RUN --mount=type=bind,from=wanted,source=/wanted,target=/wanted \
    --mount=type=bind,source=constraints.txt,target=/src/constraints.txt \
    --mount=type=bind,source=deploy/docker/engine.py,target=/src/docker/engine.py \
    --mount=type=cache,target=/root/.cache/pip,sharing=locked \
    grep -vE '^(torch|triton|nvidia-)' /src/constraints.txt | cat engine.txt - > /tmp/pinned.txt \
    && for extra in $(echo "$EXTRAS" | tr ',' ' '); do \
         /opt/engine/bin/python -m pip --python venv install --quiet -c /tmp/pinned.txt -r "/wanted/$extra.txt" || exit 1; \
       done \
    && rm /tmp/pinned.txt \
    && venv/bin/python /src/docker/engine.py | diff engine.txt - \
    || { echo "EXTRAS replaced the engine image's torch or NCCL, or could not be installed" >&2; exit 1; }
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel \
    /opt/engine/bin/python -m pip --python venv install --quiet --no-deps --no-index /wheel/*.whl
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="headrace-trainer" \
      org.opencontainers.image.description="Trains; prepares runs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
ENV HOME=/cache
USER 10001:10001
EXPOSE 7000 8080
HEALTHCHECK --interval=15s --timeout=10s --start-period=120s --retries=4 CMD ["python", "-P", "-m", "headrace.wire.process.probe"]
ENTRYPOINT ["python", "-P", "-m", "headrace.services.trainer"]
CMD ["--config", "/runs/demo/config/trainer.json"]

FROM torch AS cpu
RUN --mount=type=bind,from=wanted,source=/wanted/trainer.txt,target=/wanted/trainer.txt \
    --mount=type=bind,from=wanted,source=/wanted/cli.txt,target=/wanted/cli.txt \
    --mount=type=bind,source=constraints.txt,target=/src/constraints.txt \
    --mount=type=cache,target=/root/.cache/pip,sharing=locked \
    pip --python venv install --quiet -c /src/constraints.txt -r /wanted/trainer.txt -r /wanted/cli.txt \
    && find venv -type d -name tests -prune -print0 | xargs -0r rm -rf
# More extras of headrace, such as `tensorboard,wandb`.
ARG EXTRAS=
RUN --mount=type=bind,from=wanted,source=/wanted,target=/wanted \
    --mount=type=bind,source=constraints.txt,target=/src/constraints.txt \
    --mount=type=cache,target=/root/.cache/pip,sharing=locked \
    for extra in $(echo "$EXTRAS" | tr ',' ' '); do \
      pip --python venv install --quiet -c /src/constraints.txt -r "/wanted/$extra.txt" || exit 1; \
    done
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel \
    pip --python venv install --quiet --no-deps --no-index /wheel/*.whl
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="headrace-trainer" \
      org.opencontainers.image.description="Trains; prepares runs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
ENV HOME=/tmp
USER 10001:10001
EXPOSE 7000 8080
HEALTHCHECK --interval=15s --timeout=10s --start-period=120s --retries=4 CMD ["python", "-P", "-m", "headrace.wire.process.probe"]
ENTRYPOINT ["python", "-P", "-m", "headrace.services.trainer"]
CMD ["--config", "/runs/demo/config/trainer.json"]
