# Completes each line of standard input as bash does, and prints the words it offers.
# usage: bash complete.bash SCRIPT; words and equals signs with a blank between.
source "$1"
while IFS= read -r line; do
    read -ra COMP_WORDS <<< "$line"
    [[ $line != *' ' ]] || COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _idempoll
    echo "${COMPREPLY[*]}"
done
