# bash completion for PROGRAM. For one shell:
#   source <(PROGRAM completion bash)
# for all, write it to ~/.local/share/bash-completion/completions/PROGRAM
FUNCTION() {
	local program=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]} words=() i word IFS=$'\n'
	COMPREPLY=()
	case $program in "~/"*) program=$HOME/${program#"~/"} ;; esac
	# bash splits at "=" and ":", which belong to the words here.
	for ((i = 1; i <= COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		if ((${#words[@]} > 0)) && [[ $word == [=:]* || ${COMP_WORDS[i - 1]} == [=:] ]]; then
			words[${#words[@]} - 1]+=$word
		else
			words+=("$word")
		fi
	done
	local last=${words[${#words[@]} - 1]} cut
	case $current in
	[=:]*) cut=$last ;;
	*) cut=${last%"$current"} ;;
	esac
	local lines=($("$program" __complete "${#words[@]}" "${words[@]}" 2>/dev/null))
	case ${lines[0]} in
	words)
		for word in "${lines[@]:1}"; do
			word=${word%%$'\t'*}
			COMPREPLY+=("${word#"$cut"}")
		done
		;;
	commands) COMPREPLY=($(compgen -c -- "$current")) ;;
	directories) COMPREPLY=($(compgen -d -- "${current#=}")) && compopt -o filenames 2>/dev/null ;;
	files) COMPREPLY=($(compgen -f -- "${current#=}")) && compopt -o filenames 2>/dev/null ;;
	esac
}
complete -o bashdefault -F FUNCTION PROGRAM
