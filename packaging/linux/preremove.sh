#!/bin/sh
# Before the removal of the deb or the rpm, and not before an upgrade: the service ends.
set -e

case "$1" in
remove | 0) # as dpkg says it, and as rpm does
	if [ -d /run/systemd/system ]; then
		systemctl disable --now mcp-bridge.socket mcp-bridge.service
	fi
	;;
esac
