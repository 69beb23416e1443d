#!/bin/sh
# manual.sh VERSION DIRECTORY: writes the man page and the completion for shells, which the program itself prints.
set -e
version=$1 dir=$2
mkdir -p "$dir/completions"
GOOS='' GOARCH='' CGO_ENABLED=0 go build -tags grpcnotrace -trimpath -ldflags "-X github.com/mcp-bridge/mcp-bridge/internal/buildinfo.release=$version" \
	-o "$dir/mcp-bridge" ./cmd/mcp-bridge
"$dir/mcp-bridge" man >"$dir/mcp-bridge.1"
gzip -9nc "$dir/mcp-bridge.1" >"$dir/mcp-bridge.1.gz"
"$dir/mcp-bridge" completion bash >"$dir/completions/mcp-bridge.bash"
"$dir/mcp-bridge" completion zsh >"$dir/completions/_mcp-bridge"
"$dir/mcp-bridge" completion fish >"$dir/completions/mcp-bridge.fish"
"$dir/mcp-bridge" completion powershell >"$dir/completions/mcp-bridge.ps1"
rm "$dir/mcp-bridge"
