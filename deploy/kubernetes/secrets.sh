#!/bin/sh
# Makes the secrets of an overlay in FOLDER, a kustomize component: the broker's password, and a token for each role. What is
# there is kept, so that a file that you remove is made anew. Needs openssl.
#
#   secrets.sh my-run/secrets            then, in my-run/kustomization.yaml: components: [secrets]
#   secrets.sh my-run/secrets --tls      for the component `mutual-tls`, which comes before it: also a certificate for each
#                                        role, of a development authority in FOLDER/certs, and the broker's URL over TLS.
#                                        Needs the command `headrace` with the extra tls
#   BROKER_URL=rediss://... secrets.sh   the URL of a broker of your own, for the component `external-broker`
#   ... --tls --cert-manager             without certificates: those are made by the component `cert-manager`
set -eu
umask 077
usage="usage: secrets.sh FOLDER [--tls [--cert-manager]]"
services="trainer rollout reward environment orchestrator"
people="operator viewer annotator"

fail() {
  echo "$1" >&2
  exit 2
}

folder=${1:?$usage}
shift
certificates=
scheme=redis
path=/0
case "$*" in
  "") ;;
  --tls | "--tls --cert-manager")
    scheme=rediss
    path='/0?ssl_ca_certs=/run/secrets/tls/ca.crt'
    if [ $# = 1 ]; then
      certificates=ours
      command -v headrace > /dev/null || fail "there is no command headrace: pip install 'headrace[tls]'"
    fi
    ;;
  *) fail "$usage" ;;
esac

# Whole or not at all; without a newline, which a secret would keep.
keep() {
  test -s "$1" && return
  printf %s "$2" > "$1.new"
  mv "$1.new" "$1"
}

sha256() {
  openssl dgst -sha256 -r "$1" | cut -d' ' -f1
}

mkdir -p "$folder/broker" "$folder/tokens"
keep "$folder/broker/password" "$(openssl rand -hex 24)"
url=$(printf '%s://:%s@%s:6379%s' "$scheme" "$(cat "$folder/broker/password")" "${BROKER_HOST:-valkey}" "$path")
printf %s "${BROKER_URL:-$url}" > "$folder/broker/url"

# Services read their own token and these digests, which open nothing.
digests=
for role in $services $people; do
  keep "$folder/tokens/$role" "$(openssl rand -hex 32)"
  digests="$digests${digests:+, }\"$role\": [\"$(sha256 "$folder/tokens/$role")\"]"
done
printf '{%s}\n' "$digests" > "$folder/tokens/accepted.json"

if [ "$certificates" = ours ] && [ ! -d "$folder/certs" ]; then
  headrace certs init "$folder/certs" --host valkey --host valkey.headrace.svc --host localhost > /dev/null
fi

# One line of the component: a secret, and its files.
secret() {
  echo "  - {name: $1, namespace: headrace, behavior: replace, files: [$2]}"
}

# Not for git.
echo '*' > "$folder/.gitignore"
{
  echo "apiVersion: kustomize.config.k8s.io/v1alpha1"
  echo "kind: Component"
  echo "secretGenerator:"
  secret broker broker/password
  secret broker-url broker/url
  for role in $services; do
    secret "token-$role" "tokens/$role, tokens/accepted.json"
  done
  if [ "$certificates" = ours ]; then
    for role in $services broker; do
      secret "tls-$role" "ca.crt=certs/ca.pem, tls.crt=certs/$role.pem, tls.key=certs/$role-key.pem"
    done
  fi
  secret user-tokens "tokens/operator, tokens/viewer, tokens/annotator"
} > "$folder/kustomization.yaml"
