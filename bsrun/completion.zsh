#compdef bsrun
# SPDX-License-Identifier: MIT
# zsh completion for bsrun. Installed to share/zsh/site-functions/_bsrun; also printed by `bsrun completion zsh`. The program itself
# says what the last word of a line may be (`bsrun completion line`). It reads notes and folders and runs no plugin code.

_bsrun() {
  local -a plain keys
  local line word place
  for line in ${(f)"$(${~words[1]} completion line -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)"}; do
    word=${line%%$'\t'*}
    case $word in
      :file) place='_files' ;;
      :dir) place='_files -/' ;;
      *=) keys+=("${word//:/\\:}") ;;
      *) plain+=("${word//:/\\:}${${line#*$'\t'}:+:${line#*$'\t'}}") ;;
    esac
  done
  (( $#keys )) && _describe -t keys key keys -S ''
  (( $#plain )) && _describe -t words word plain
  if [[ -n $place ]]; then
    compset -P '*='
    ${=place}
  fi
}

if [[ ${funcstack[1]} == _bsrun ]]; then
  _bsrun "$@"
else
  compdef _bsrun bsrun
fi
