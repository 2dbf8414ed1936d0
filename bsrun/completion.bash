# bash completion for bsrun                                      -*- shell-script -*-
# SPDX-License-Identifier: MIT
# Installed to share/bash-completion/completions/bsrun; also printed by `bsrun completion bash`. The program itself says what the
# last word of a line may be (`bsrun completion line`). It reads notes and folders and runs no plugin code.

_bsrun() {
  local program=${COMP_WORDS[0]/#\~/$HOME} typed=${COMP_WORDS[COMP_CWORD]} cut=0 i words=() word strip
  COMPREPLY=()
  # --option=value and b1h1:f32 reach us as three words.
  for ((i = 1; i <= COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} == [=:] ]] && ((${#words[@]} > 0)); then
      words[-1]+=${COMP_WORDS[i]} cut=1
    elif ((cut)); then
      words[-1]+=${COMP_WORDS[i]} cut=0
    else
      words+=("${COMP_WORDS[i]}")
    fi
  done
  if ((cut)); then typed=; fi
  strip=${words[-1]%"$typed"}
  while IFS=$'\t' read -r word _; do
    case $word in
      :file | :dir)
        compopt -o filenames 2>/dev/null
        if [[ $word == :dir ]]; then i=directory; else i=file; fi
        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -A "$i" -- "$typed")
        ;;
      *) COMPREPLY+=("${word#"$strip"}") ;;
    esac
  done < <("$program" completion line -- "${words[@]}" 2>/dev/null)
  if [[ ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi
}

complete -F _bsrun bsrun
