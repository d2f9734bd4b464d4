#!/bin/sh
# Makes the secrets of an overlay in FOLDER, a kustomize component: the broker's password, and a token for each role. What is
# there is kept, so that a file that you remove is made anew. Needs openssl.
#
#   secrets.sh my-run/secrets            then, in my-run/kustomization.yaml: components: [secrets]
set -eu
umask 077
folder=${1:?usage: secrets.sh FOLDER}
services="trainer rollout reward environment orchestrator"
people="operator viewer annotator"

# Whole or not at all; without a newline, which a secret would keep.
keep() {
  test -s "$1" && return
  printf %s "$2" > "$1.new"
  mv "$1.new" "$1"
}

mkdir -p "$folder/broker" "$folder/tokens"
keep "$folder/broker/password" "$(openssl rand -hex 24)"
printf 'redis://:%s@valkey:6379/0' "$(cat "$folder/broker/password")" > "$folder/broker/url"

# Services read their own token and these digests, which open nothing.
digests=
for role in $services $people; do
  keep "$folder/tokens/$role" "$(openssl rand -hex 32)"
  digest=$(openssl dgst -sha256 -r "$folder/tokens/$role" | cut -d' ' -f1)
  digests="$digests${digests:+, }\"$role\": [\"$digest\"]"
done
printf '{%s}\n' "$digests" > "$folder/tokens/accepted.json"

# Not for git.
echo '*' > "$folder/.gitignore"
{
  echo "apiVersion: kustomize.config.k8s.io/v1alpha1"
  echo "kind: Component"
  echo "secretGenerator:"
  echo "  - {name: broker, namespace: headrace, behavior: replace, files: [broker/password, broker/url]}"
  for role in $services; do
    echo "  - {name: token-$role, namespace: headrace, behavior: replace, files: [tokens/$role, tokens/accepted.json]}"
  done
  echo "  - name: user-tokens"
  echo "    namespace: headrace"
  echo "    behavior: replace"
  echo "    files: [tokens/operator, tokens/viewer, tokens/annotator]"
} > "$folder/kustomization.yaml"
