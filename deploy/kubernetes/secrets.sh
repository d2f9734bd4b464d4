#!/bin/sh
# Makes the secrets of an overlay in FOLDER, a kustomize component: the broker's password, and a token for each role. What is
# there is kept, so that a file that you remove is made anew. Needs openssl.
#
#   secrets.sh my-run/secrets            then, in my-run/kustomization.yaml: components: [secrets]
#   secrets.sh my-run/secrets --tls RUN  for the component `mutual-tls`, which comes before it: also a certificate for each
#                                        role, of a development authority in FOLDER/certs, and a user of the broker, which
#                                        may use the streams of the run RUN. Needs the command `headrace` with the extra tls
#   ... --tls RUN --cert-manager         without certificates: those are made by the component `cert-manager`
set -eu
umask 077
usage="usage: secrets.sh FOLDER [--tls RUN [--cert-manager]]"
services="trainer rollout reward environment orchestrator"
people="operator viewer annotator"

fail() {
  echo "$1" >&2
  exit 2
}

folder=${1:?$usage}
run=
certificates=
case $# in
  1) ;;
  3 | 4)
    test "$2" = --tls && test -n "$3" || fail "$usage"
    run=$3
    certificates=ours
    if [ $# = 4 ]; then
      test "$4" = --cert-manager || fail "$usage"
      certificates=theirs
    fi
    command -v headrace > /dev/null || fail "there is no command headrace: pip install 'headrace[tls]'"
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
printf 'redis://:%s@valkey:6379/0' "$(cat "$folder/broker/password")" > "$folder/broker/url"

# Services read their own token and these digests, which open nothing.
digests=
for role in $services $people; do
  keep "$folder/tokens/$role" "$(openssl rand -hex 32)"
  digests="$digests${digests:+, }\"$role\": [\"$(sha256 "$folder/tokens/$role")\"]"
done
printf '{%s}\n' "$digests" > "$folder/tokens/accepted.json"

if [ -n "$run" ]; then
  # Beside the users of the services: the administrator, whose password the broker's pod has, and KEDA, which reads a lag.
  headrace broker acl "$folder/users" --run-id "$run" \
    --url 'rediss://valkey:6379/0?ssl_ca_certs=/run/secrets/tls/ca.crt' > /dev/null
  keep "$folder/broker/keda" "$(openssl rand -hex 24)"
  {
    cat "$folder/users/users.acl"
    echo "user admin on #$(sha256 "$folder/broker/password") ~* &* +@all"
    echo "user keda on #$(sha256 "$folder/broker/keda") ~headrace:{$run}:rollouts ~headrace:{$run}:episodes resetchannels -@all" \
      "+hello +ping +select +info +xinfo|groups +xpending"
  } > "$folder/broker/users.acl"
fi
if [ "$certificates" = ours ] && [ ! -d "$folder/certs" ]; then
  headrace certs init "$folder/certs" --host valkey --host valkey.headrace.svc --host localhost > /dev/null
fi

# One line of the component: a secret, and its files.
secret() {
  echo "  - {name: $1, namespace: headrace, behavior: $2, files: [$3]${4:-}}"
}

# Not for git.
echo '*' > "$folder/.gitignore"
{
  echo "apiVersion: kustomize.config.k8s.io/v1alpha1"
  echo "kind: Component"
  echo "secretGenerator:"
  secret broker replace "broker/password${run:+, broker/users.acl}"
  for role in $services operator; do
    url=broker/url
    test -z "$run" || url="url=users/$role.url"
    secret "broker-$role" replace "$url"
  done
  for role in $services; do
    secret "token-$role" replace "tokens/$role, tokens/accepted.json"
  done
  if [ "$certificates" = ours ]; then
    for role in $services broker; do
      secret "tls-$role" replace "ca.crt=certs/ca.pem, tls.crt=certs/$role.pem, tls.key=certs/$role-key.pem"
    done
  fi
  secret user-tokens replace "tokens/operator, tokens/viewer, tokens/annotator"
  test -z "$run" || secret broker-keda create "password=broker/keda" ", literals: [username=keda, tls=enable]"
} > "$folder/kustomization.yaml"
