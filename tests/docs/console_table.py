"""What is done with every line of the ```console blocks. `test_console_table.py` holds this against the pages."""

from tests.docs.console import Case

WORDS = {
    # Placeholders of the pages, and what stands for them in the reader's folder.
    "RUN_DIR": "runs/mine",
    "[runs/mine]": "runs/mine",  # What is left of `[RUN_DIR]`: the line shows that it may be left out.
    "RUN.toml": "run.toml",
    # The live run is started last but not alone: another run on this machine may have the documented port.
    "http://127.0.0.1:8080": "$URL",
    "http://train.example:8080": "$URL",
    "localhost:PORT": "localhost:$REWARD_PORT",
    "1700000000000-0": "$LETTER",
}
"""The smallest set of substitutions; the variables are those of `reader.py`."""

LIVE_RUN = Case(line="headrace train run.toml", says=r"stopped after \d+ steps")
_PAGE = r"http://127\.0\.0\.1:\d+/"
LIVE = (
    Case(line="headrace pause RUN_DIR", says="paused"),
    Case(line="headrace status", says=r"orchestrator +pid \d+ +running"),
    Case(
        line="headrace status --url http://127.0.0.1:8080 --token-file token.txt",
        says=r"rollout-1 .*(serving|updating)",
    ),
    Case(line="headrace status RUN_DIR", says=r"trainer +pid \d+ +alive"),
    Case(line="headrace watch RUN_DIR", says=r"waits for|step \d+", until_ctrl_c=True),
    Case(line="headrace annotate runs/mine", says=_PAGE + "annotate"),
    Case(
        line="curl -s localhost:PORT/score -H 'content-type: application/json'"
        """ -d '{"samples": [{"prompt": "6*7=", "completion": "42", "answer": "42"}]}'""",
        says=r'"exact_match":1\.0',
    ),
    Case(line="headrace dead RUN_DIR", says=r"\d{13}-0 +mine/g\d{8} .*the engine said no"),
    Case(line="headrace dead RUN_DIR --requeue 1700000000000-0", says=r"is issued again"),
    Case(line="headrace dead RUN_DIR --requeue-all", says=r"is issued again"),
    Case(line="headrace resume RUN_DIR", says="resumed"),
    Case(line="headrace checkpoint RUN_DIR", says="writes a checkpoint"),
    Case(line="headrace scale rollout 4 RUN_DIR", says=r"rollout-3 is started"),
    Case(line="headrace scale rollout 4 [RUN_DIR]", says=r"4"),
    Case(line="headrace drain rollout-1 RUN_DIR", says="rollout-1 takes no more prompts"),
    Case(line="headrace pause --url http://127.0.0.1:8080 --token-file token.txt", says="paused"),
    Case(
        line='headrace generate RUN_DIR --messages chat.json --max-tokens 200 --temperature 0.7 --stop "###" --seed 1',
        says="",
    ),
    Case(line='headrace generate RUN_DIR --prompt "12+34=" --step 80', says=""),
    Case(line="headrace export RUN_DIR --step 60 --out model", says="the model after step 60"),
    Case(line="headrace stop --url http://train.example:8080 --token-file token.txt", says="stopping"),
)
"""On one live run, in this order, which is that of its life."""

ENDED = (
    Case(line="headrace dashboard runs/mine", says=_PAGE, until_ctrl_c=True),
    Case(line="headrace dashboard runs/demo", says=_PAGE, replaced=(("runs/demo", "runs/mine"),), until_ctrl_c=True),
    Case(
        # The port may be taken; the browser is one that tells its argument (see `reader.py`).
        line="headrace dashboard RUN_DIR --port 8000 --open",
        says=_PAGE,
        replaced=(("8000", "$FREE_PORT"),),
        until_ctrl_c=True,
    ),
    Case(line="headrace replay RUN_DIR --out slower --trainer.learning-rate 1e-7 --export", says="slower"),
    Case(line="headrace replay RUN_DIR --out part --from-checkpoint 80 --steps 81:90", says="part"),
    Case(line="headrace doctor RUN.toml --run-dir runs/mine", says="torch"),
)
"""On the same run when it has ended."""

WITHOUT_A_RUN = (
    Case(line="headrace algorithms", says="sapo"),
    Case(line="headrace algorithms dapo", says="clip_high"),
    Case(line="headrace doctor", says="sandbox"),
    Case(line="headrace broker acl users --run-id my-run --url redis://valkey:6379/0", says="users/users.acl"),
    Case(line="headrace certs init certs --host train.example", says="a certificate for each role"),
    Case(line="headrace --install-completion bash", says="completion"),
    Case(line="headrace score --reward math --input pairs.jsonl --output scores.jsonl", says="scores.jsonl"),
    Case(line="headrace score --config run.toml --input pairs.jsonl --output scores.jsonl", says="scores.jsonl"),
)

_SMALL_DEMO = "--run.max-steps 2 --sft.steps 3 --batch.groups 8 --eval.prompts 8 --rollout.replicas 1"
TRAINING = (
    Case(
        line="headrace train run.toml --run.stage sft --model.path MODEL --run-dir runs/sft",
        says="runs/sft",
        more="--sft.steps 2 --sft.batch-size 4",
    ),
    Case(
        line="headrace train run.toml --run.stage reward_model --model.path runs/sft/export --run-dir runs/rm",
        says="runs/rm",
        more="--reward-model.steps 2 --reward-model.batch-size 4",
    ),
    # Four processes with torch are too much for two cores: what is checked before they start.
    # tests/integration/trainer/backends trains with several.
    Case(line="headrace train run.toml --trainer.ranks 4", says="prompts", more="--dry-run --run-dir runs/fsdp2"),
    Case(
        line="headrace train run.toml --trainer.ranks 4 --trainer.backend deepspeed --trainer.zero-stage 2",
        says="prompts",
        more="--dry-run --run-dir runs/deepspeed",
    ),
    Case(
        line="headrace demo --run-dir runs/traced --tracing.endpoint http://127.0.0.1:4318",
        says="step 2 ",
        more=_SMALL_DEMO,
        replaced=(("http://127.0.0.1:4318", "$COLLECTOR"),),
    ),
    Case(
        line="""headrace demo --run-dir runs/tracked --trackers.use '["tensorboard"]'""",
        says="step 2 ",
        more=_SMALL_DEMO,
    ),
    Case(line="tensorboard --logdir runs/tracked/trackers/tensorboard", says="http://", until_ctrl_c=True),
)
"""The commands as they are, cut short by what `more` appends."""

UNTIL_STOPPED = (
    Case(line="headrace train RUN.toml --algorithm.name dapo", says="stopped after", more="--run-dir runs/dapo"),
    Case(line="headrace stop RUN_DIR", says="stopping", replaced=(("RUN_DIR", "runs/dapo"),)),
)
"""The first is stopped by the second."""

SECRETS = (
    Case(line="deploy/kubernetes/secrets.sh my-run/secrets", says=""),
    # In a folder of its own: KUBERNETES applies the overlay without TLS.
    Case(
        line="deploy/kubernetes/secrets.sh my-run/secrets --tls demo",
        says="",
        replaced=(("my-run/secrets", "my-run/over-tls"),),
    ),
    Case(
        line="deploy/kubernetes/secrets.sh my-run/secrets --tls demo --cert-manager",
        says="",
        replaced=(("my-run/secrets", "my-run/cert-manager"),),
    ),
    Case(
        line="headrace certs rotate --tls my-run/secrets/certs",
        says="renewed the certificates",
        replaced=(("my-run/secrets", "my-run/over-tls"),),
    ),
)
"""Before KUBERNETES."""

_WITHOUT_A_CLUSTER = "--dry-run=client --output yaml"
KUBERNETES = (
    # The overlay is rendered, as `apply -k` does before it asks the cluster.
    Case(line="kubectl apply -k my-run", says="kind: StatefulSet", replaced=(("apply -k", "kustomize"),)),
    Case(
        line="kubectl -n headrace create secret generic engine --from-literal=api-key=$(openssl rand -hex 24)"
        " --from-literal=admin-key=$(openssl rand -hex 24)",
        says="admin-key: ",
        more=_WITHOUT_A_CLUSTER,
    ),
    Case(
        line="kubectl -n headrace create secret generic trackers --from-env-file=trackers.env",
        says="WANDB_API_KEY: ",
        more=_WITHOUT_A_CLUSTER,
    ),
)


BEFORE_UP = (
    Case(line="docker compose build", says=""),
    Case(line="docker compose --profile cpu build", says=""),
    # Packages of an index that a test does not ask for: the build's arguments are looked at.
    Case(
        line="TRAINER_EXTRAS=tensorboard,wandb docker compose build",
        says="EXTRAS: tensorboard,wandb",
        replaced=(("build", "config"),),
    ),
    # Starting it needs GPUs.
    Case(
        line="docker compose -f docker-compose.yml -f deploy/compose/gpus.yml up --detach --scale rollout=2",
        says=r"device_ids:\s+- \"0\"\s+- \"1\"",
        replaced=(
            ("docker compose", "COMPOSE_PROFILES=gpu docker compose"),
            ("up --detach --scale rollout=2", "config"),
        ),
    ),
    Case(
        line="docker compose --profile one-gpu up --detach",
        says="rollout-one-gpu",
        replaced=(("docker compose", "COMPOSE_PROFILES= docker compose"), ("up --detach", "config")),
    ),
    Case(
        line="docker compose -f docker-compose.yml -f deploy/compose/profiling.yml up --detach",
        says=r"cap_add:\s+- SYS_ADMIN",
        replaced=(("docker compose", "COMPOSE_PROFILES=gpu docker compose"), ("up --detach", "config")),
    ),
    Case(
        line="docker compose run --rm --no-deps -T --entrypoint sh setup -c"
        " 'umask 077; cat > /state/broker/password' < my-password",
        says="",
        replaced=(("my-password", "$FOLDER/my-password"),),
    ),
    Case(
        line="docker compose run --rm --no-deps -T --entrypoint rm setup /state/tokens/reward/reward",
        says="",
        # Nothing is there to be removed yet.
        replaced=(("rm setup", "rm setup -f"),),
    ),
    Case(
        line="docker compose run --rm --no-deps -T --entrypoint sh setup -c"
        " 'umask 077; cat > /state/hub/token' < my-token",
        says="",
        replaced=(("my-token", "$FOLDER/my-token"),),
    ),
)
UP = Case(line="docker compose --profile cpu up", says="rollout-cpu")
WHILE_UP = (
    Case(line="docker compose up --detach", says=""),
    Case(
        line="docker compose logs --follow trainer",
        says=r"trainer",
        replaced=(("trainer", "trainer-cpu"),),
        until_ctrl_c=True,
    ),
    Case(line="docker compose up --detach --no-recreate --scale reward=2", says="reward-2"),
    # Four replicas are too much for two cores.
    Case(
        line="docker compose up --detach --no-recreate --scale rollout=4",
        says="rollout-cpu-2",
        replaced=(("rollout=4", "rollout-cpu=2"),),
    ),
    Case(
        line="docker compose cp orchestrator:/runs/my-run/export ./my-model",
        says="",
        replaced=(("orchestrator", "orchestrator-cpu"), ("./my-model", "$FOLDER/my-model")),
    ),
    # In the background, and of the service that it is about.
    Case(
        line="docker compose -f docker-compose.yml -f deploy/compose/code-rewards.yml --profile cpu up",
        says="reward",
        more="--detach --no-deps reward",
    ),
)
AFTER_UP = Case(line="docker compose --profile '*' down --volumes", says="")
"""With a real engine and the profile `cpu`: before, while, and after it is up."""

ELSEWHERE = {
    "make demo": ("tests/e2e/compose/test_newcomer.py", "make demo"),
    "source .venv/bin/activate": ("tests/e2e/compose/test_newcomer.py", r"source \.venv/bin/activate"),
    "make test": (".ci/run", "make test"),
    "make sglang": ("Makefile", "-j2 --output-sync=target compose sglang"),
    "deploy/sglang-cpu/install.sh VENV": ("Makefile", "deploy/sglang-cpu/install.sh $(SGLANG_VENV)"),
    "headrace train examples/sglang_cpu/run.toml --rollout.sglang.venv VENV": (
        "tests/e2e/test_sglang_run.py",
        '"--rollout.sglang.venv"',
    ),
    "docker compose -f docker-compose.yml -f deploy/compose/nodes.yml --profile cpu up": (
        "tests/e2e/compose/test_nodes.py",
        "deploy/compose/nodes.yml",
    ),
    "docker compose -f docker-compose.yml -f deploy/compose/tls.yml --profile cpu up": (
        "tests/e2e/compose/test_tls.py",
        "docker-compose.yml:deploy/compose/tls.yml",
    ),
    "docker compose -f docker-compose.yml -f deploy/compose/tls.yml run --rm --no-deps -T --entrypoint rm setup -r "
    "/state/vault/certs /state/vault/users": (
        "tests/e2e/compose/test_tls.py",
        '"setup", "-r", "/state/vault/certs", "/state/vault/users"',
    ),
    "docker compose -f docker-compose.yml -f deploy/compose/tls.yml up --detach --force-recreate": (
        "tests/e2e/compose/test_tls.py",
        '"up", "--detach", "--force-recreate"',
    ),
    "docker compose -f docker-compose.yml -f deploy/compose/tls.yml exec valkey sh -c 'REDISCLI_AUTH=$(cat "
    "/run/broker/password) valkey-cli --tls --cacert /run/broker/ca.crt --user admin ACL LOG'": (
        "tests/e2e/compose/test_tls.py",
        '$(cat /run/broker/password)" valkey-cli --tls --cacert /run/broker/ca.crt --user',
    ),
    "docker compose exec orchestrator-cpu cat /run/user-tokens/operator": (
        "tests/e2e/compose/test_doors.py",
        '"/run/user-tokens/operator"',
    ),
    "rm my-run/secrets/tokens/reward": ("tests/integration/kubernetes/test_tokens.py", "token.unlink()"),
    "docker compose up --detach --force-recreate": (
        "tests/e2e/compose/test_doors.py",
        '"up", "--detach", "--force-recreate"',
    ),
    "docker compose exec orchestrator-cpu headrace pause --url http://127.0.0.1:8080": (
        "tests/e2e/compose/test_doors.py",
        '"orchestrator-cpu", "headrace", "pause", "--url"',
    ),
    "docker compose --profile cpu --profile environment up": (
        "tests/e2e/compose/test_episodes.py",
        '"cpu,environment"',
    ),
    "docker compose --profile cpu --profile environment up --detach --no-recreate --no-deps --scale environment=4 "
    "environment": (
        "tests/e2e/compose/test_episodes.py",
        '"--no-recreate", "--no-deps", "--scale")',
    ),
    "kubectl -n headrace delete job trainer --cascade=foreground --wait": (
        "tests/integration/kubernetes/test_scenarios.py",
        "(delete job trainer .*)",
    ),
    "kubectl -n headrace scale deployment/rollout --replicas=4": (
        "tests/integration/kubernetes/test_scenarios.py",
        '"--replicas=4"',
    ),
    "kubectl -n headrace exec orchestrator-0 -c orchestrator -- headrace check /runs/demo": (
        "tests/integration/kubernetes/test_real_node.py",
        "(exec orchestrator-0 .* headrace check .*)",
    ),
    "kubectl -n headrace exec orchestrator-0 -c orchestrator -- cat /run/secrets/user-tokens/operator": (
        "tests/integration/kubernetes/test_real_node.py",
        "(exec orchestrator-0 .* cat .*)",
    ),
    "kubectl -n headrace cp -c orchestrator orchestrator-0:/runs/demo/export my-model": (
        "tests/integration/kubernetes/test_real_node.py",
        "(cp .*) my-model",
    ),
    "headrace certs rotate RUN_DIR": ("tests/e2e/test_tls_run.py", 'said("certs", "rotate", run.run_dir'),
    "headrace certs rotate RUN_DIR --tls certs": ("tests/e2e/test_tls_run.py", '"--tls", tls'),
    "headrace certs rotate --tokens my-tokens --phase accept": (
        "tests/unit/headrace/cli/test_certs.py",
        '"--tokens", tmp_path / "tokens", "--phase", phase',
    ),
    "headrace check RUN_DIR": ("tests/e2e/test_looking.py", "check_run(run.run_dir)"),
    "headrace check RUN_DIR --receipt HEX": ("tests/e2e/test_receipts.py", 'said("check", run_dir, "--receipt"'),
    "headrace join RUN_DIR --node 1": ("tests/e2e/test_nodes_run.py", '"headrace", "join"'),
    "examples/rlhf/run.sh runs/rlhf": ("tests/e2e/test_rlhf.py", '"run.sh"'),
    "examples/tools/run.sh runs/tools": ("tests/e2e/tools_example.py", '"run.sh"'),
    "headrace train examples/tools/run.toml --run-dir runs/tools/program --data.path runs/tools/data/tasks.jsonl "
    '--model.path runs/tools/sft/export --environment.name "" --environment.command \'["python", "agent.py"]\' '
    '--environment.reward_command \'["python", "grade.py"]\' --environment.path examples/tools/program '
    "--environment.max_turn_tokens 48": ("tests/e2e/test_tools_forms.py", '"command": ["python", "agent.py"]'),
    "headrace train examples/tools/run.toml --run-dir runs/tools/trl --data.path runs/tools/data/tasks.jsonl "
    "--model.path runs/tools/sft/export --environment.name trl:stock:Stock --environment.path examples/tools/trl "
    "--environment.rewards '[\"stock:right\"]'": ("tests/e2e/test_tools_forms.py", '"trl:stock:Stock"'),
    'headrace train examples/tools/run.toml --run-dir runs/tools/verifiers --data.path "" --data.environment '
    "examples/tools/verifiers/stock --data.limit 6000 --model.path runs/tools/sft/export --environment.name "
    "verifiers:stock --environment.path examples/tools/verifiers": (
        "tests/e2e/test_tools_taskset.py",
        '"--data.environment"',
    ),
    "headrace explain g59/3 RUN_DIR": ("tests/e2e/test_seeing_episodes.py", 'said("explain", "g0/1"'),
    "headrace generate RUN_DIR --environment": ("tests/e2e/test_seeing_episodes.py", 'LOOK = ("--environment"'),
    """headrace generate RUN_DIR --environment --task '{"a": 12, "b": 30}' --seed 1""": (
        "tests/e2e/test_seeing_episodes.py",
        '"--task", ',
    ),
    "ENVIRONMENT_TARGET=verifiers docker compose build environment": (
        "tests/e2e/compose/test_taskset.py",
        '"ENVIRONMENT_TARGET": "verifiers"',
    ),
    'docker compose run --rm --no-deps -T --entrypoint "python -P -m'
    ' headrace.services.environment.taskset.write_rows" environment sums --path /config/sets --limit 6000 >'
    " my-run/rows.jsonl": ("tests/e2e/compose/test_taskset.py", "project.compose(*write, "),
    "cd ui && npm ci && npm run build && npm test": ("tests/e2e/dashboard/test_build.py", '"run", "build"'),
}
"""Run by another test or by continuous integration: the file, and what must stand in it."""

_CLUSTER = "needs a cluster's API server; test_other_commands.py holds the objects against what is rendered"
_INDEX = "downloads from a registry"
NOT_HERE = {
    "kind create cluster": _CLUSTER,
    "kind load docker-image headrace-orchestrator:0.1.0 headrace-reward:0.1.0 headrace-rollout:0.1.0-cpu"
    " headrace-trainer:0.1.0-cpu": _CLUSTER,
    "kubectl -n headrace get pods --watch": _CLUSTER,
    "kubectl -n headrace logs job/trainer --all-containers --follow": _CLUSTER,
    "kubectl -n headrace get jobset,pods -l app.kubernetes.io/component=trainer": _CLUSTER,
    "kubectl -n headrace logs job/trainer-node-0 --all-pods --all-containers --follow --prefix": _CLUSTER,
    "kubectl -n headrace port-forward service/orchestrator 8080:8080": _CLUSTER,
    "kubectl delete namespace headrace": _CLUSTER,
    "kubectl -n headrace wait --for=condition=Ready pod -l app.kubernetes.io/component=trainer --timeout=30m": _CLUSTER,
    "kubectl -n headrace scale statefulset/orchestrator --replicas=0": _CLUSTER,
    "kubectl -n headrace wait --for=delete pod/orchestrator-0 --timeout=5m": _CLUSTER,
    "kubectl -n headrace rollout restart statefulset/orchestrator deployment/rollout deployment/reward": _CLUSTER,
    "kubectl -n headrace rollout status deployment/rollout --timeout=1h": _CLUSTER,
    """kubectl -n headrace patch job trainer --patch '{"spec": {"suspend": true}}'""": _CLUSTER,
    """kubectl -n headrace patch job trainer --patch '{"spec": {"suspend": false}}'""": _CLUSTER,
    "pip install 'headrace[verifiers]'": _INDEX,
    "headrace train run.toml --model.path Qwen/Qwen2.5-0.5B-Instruct": "downloads a model; test_hub.py has its own Hub",
    "headrace train ported/run.toml --run-dir runs/ported": "downloads a model; the block above dry-runs it",
    "make gpu": "downloads 8 GB of what a machine without a GPU cannot use",
    "docker run --rm -d -p 127.0.0.1:16686:16686 -p 127.0.0.1:4318:4318 jaegertracing/all-in-one:1.76.0": _INDEX,
    "docker build -f deploy/docker/trainer.Dockerfile --target gpu --build-arg EXTRAS=wandb"
    " -t registry.example/headrace-trainer:0.1.0-gpu .": _INDEX,
    "docker buildx imagetools inspect python:3.11.14-slim-bookworm": _INDEX,
    "docker compose --profile cpu --profile observability up": _INDEX,
    "docker compose exec grafana cat /run/grafana/admin_password": _INDEX,
    "git pull": "needs a newer version of the project",
}
"""Only parsed, and why."""
