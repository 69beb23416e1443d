# fish completion for PROGRAM. For one shell:
#   PROGRAM completion fish | source
# for all, write it to ~/.config/fish/completions/PROGRAM.fish
function FUNCTION
    set -l before (commandline -opc)
    set -l program (string replace -r '^~/' "$HOME/" -- $before[1])
    set -l lines ($program __complete (count $before) $before[2..-1] (commandline -ct) 2>/dev/null)
    switch "$lines[1]"
        case words
            test (count $lines) -gt 1; and printf '%s\n' $lines[2..-1]
        case directories
            __fish_complete_directories (commandline -ct)
        case commands
            complete -C (commandline -ct)
        case files
            __fish_complete_path (commandline -ct)
    end
end
complete -c PROGRAM -f -a '(FUNCTION)'
