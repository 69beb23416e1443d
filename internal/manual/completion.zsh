#compdef PROGRAM
# zsh completion for PROGRAM. For one shell:
#   source <(PROGRAM completion zsh)
# for all, write it to a file _PROGRAM in a folder of $fpath
FUNCTION() {
	local -a lines found
	local line count=$((CURRENT - 1))
	lines=("${(@f)$(${~words[1]} __complete $count "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
	case $lines[1] in
	words)
		for line in "${(@)lines[2,-1]}"; do
			found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
		done
		_describe PROGRAM found
		;;
	directories) _files -/ ;;
	commands) _command_names -e ;;
	files) _files ;;
	esac
}
if [[ $funcstack[1] == _PROGRAM ]]; then
	FUNCTION "$@"
else
	compdef FUNCTION PROGRAM
fi
