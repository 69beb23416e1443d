#!/bin/sh
# After the removal of the deb or the rpm. The user stays, for files may belong to it.
set -e

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
if [ "$1" = purge ]; then # dpkg alone can be asked to delete what the service has written
	rm -rf /var/lib/mcp-bridge
fi
