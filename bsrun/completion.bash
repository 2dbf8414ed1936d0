# bash completion for bsrun                                      -*- shell-script -*-
# SPDX-License-Identifier: MIT
# Installed to share/bash-completion/completions/bsrun; also printed by `bsrun completion bash`. Names and options come from the
# program itself (`bsrun completion words KIND`), which reads notes and folders and runs no plugin code.

_bsrun_words() {
  local program=${COMP_WORDS[0]/#\~/$HOME}
  "$program" completion words "$@" 2>/dev/null
}

_bsrun_reply() { # cur kind...
  local cur=$1
  shift
  local words
  words=$(_bsrun_words "$@")
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

_bsrun_files() { # cur file|directory
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -A "$2" -- "$1")
}

# What is there already, and files.
_bsrun_and_files() { # cur
  local words=("${COMPREPLY[@]}")
  _bsrun_files "$1" file
  COMPREPLY+=("${words[@]}")
}

# The words between the verb and the one being typed that are neither options nor their values, into `before`.
_bsrun_before() { # verb
  local i word valued
  valued=$(_bsrun_words valued $1)
  valued=" ${valued//$'\n'/ } "
  before=()
  for ((i = 2; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $word != -* ]]; then
      before+=("$word")
    elif [[ ${COMP_WORDS[i + 1]} == "=" ]]; then
      ((i += 2))
    elif [[ $valued == *" $word "* ]]; then
      ((i += 1))
    fi
  done
}

_bsrun() {
  local before cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} verb=run first=${COMP_WORDS[1]} second=${COMP_WORDS[2]}
  COMPREPLY=()
  # --option=value reaches us as three words.
  if [[ $cur == "=" ]]; then
    cur=
  elif [[ $prev == "=" ]]; then
    prev=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  if ((COMP_CWORD > 1)) && [[ $first != -* ]]; then
    verb=$first
    if [[ $first == @(plugins|config|model|bench|sim|coll|runs|profile|completion) ]] && ((COMP_CWORD > 2)); then verb="$first $second"; fi
  fi

  case $prev in
    --method) _bsrun_reply "$cur" methods; return ;;
    --no-pass) _bsrun_reply "$cur" passes; return ;;
    --mask) _bsrun_reply "$cur" masks; return ;;
    --with | --show | --stored)
      compopt -o nospace 2>/dev/null
      _bsrun_reply "$cur" within "$prev" $verb
      return
      ;;
    --algorithm) _bsrun_reply "$cur" algorithms; return ;;
    --workload) _bsrun_reply "$cur" workloads; return ;;
    --hardware) _bsrun_reply "$cur" hardware; return ;;
    --sweep) _bsrun_reply "$cur" sweeps; return ;;
    --phase) _bsrun_reply "$cur" phases; return ;;
    --backend) _bsrun_reply "$cur" backends; return ;;
    --comm) _bsrun_reply "$cur" comms; return ;;
    --bias) COMPREPLY=($(compgen -W "on off" -- "$cur")); return ;;
    --dtype | --reduce-dtype) _bsrun_reply "$cur" dtypes; return ;;
    --activation) _bsrun_reply "$cur" activations; return ;;
    --kind) _bsrun_reply "$cur" skeletons; return ;;
    -o | --output)
      if [[ $verb == "plugins check" || $verb == torture ]]; then
        mapfile -t COMPREPLY < <(compgen -W "text tap json" -- "$cur")
      elif [[ $verb == "model explain" || $verb == "model generate" ]]; then
        mapfile -t COMPREPLY < <(compgen -W "text json" -- "$cur")
      else
        _bsrun_reply "$cur" formats
      fi
      return
      ;;
    --fault)
      mapfile -t COMPREPLY < <(compgen -W "err hang delay late flip nan truncate kill stop" -- "$cur")
      return
      ;;
    --coll)
      mapfile -t COMPREPLY < <(compgen -W "all_reduce all_gather reduce_scatter broadcast all_to_all" -- "$cur")
      return
      ;;
    --weak) mapfile -t COMPREPLY < <(compgen -W "b n k" -- "$cur"); return ;;
    --launch) mapfile -t COMPREPLY < <(compgen -W "threads processes mpi" -- "$cur"); return ;;
    --product) mapfile -t COMPREPLY < <(compgen -W "forward dx dw" -- "$cur"); return ;;
    --preset) mapfile -t COMPREPLY < <(compgen -W "quick full" -- "$cur"); return ;;
    --only)
      if [[ $verb == "plugins check" ]]; then
        mapfile -t COMPREPLY < <(compgen -W "abi lifecycle truth numerics method communicator workload algorithm threads hygiene" -- "$cur")
      elif [[ $verb == "coll check" ]]; then
        mapfile -t COMPREPLY < <(compgen -W "V4 V0 V1 V2 V6" -- "$cur")
      fi
      return
      ;;
    --plugin)
      if [[ $cur == */* ]]; then _bsrun_files "$cur" file; else _bsrun_reply "$cur" plugins; fi
      return
      ;;
    --set | --vary | -x)
      compopt -o nospace 2>/dev/null
      _bsrun_reply "$cur" keys
      return
      ;;
    --config | --batch | --planned | --candidate | --cache | --tune-cache | --points | --simulate | --xfail | --torch | --gates) _bsrun_files "$cur" file; return ;;
    --to) _bsrun_reply "$cur" within "$prev" $verb; _bsrun_and_files "$cur"; return ;;
    --out | --check | --original) _bsrun_files "$cur" directory; return ;;
    -P | -j | -w | --world-size | --timeout | --run-id | --resume | --baseline | --rank | --b | --n | --k | --at-least | --param | --option | --jobs | --plan | --op | --seconds | --mpirun | --dim | --input | --constant | --choice | --ids | --tokens | --stop | --threads | --cache-tokens | --size | --late | --beside | --samples | --provider | --warmup | --seed | --limit | --where | --skip | --ablate | --knob | --start | --strategy | --rules | --counters) return ;;
  esac

  if [[ $cur == -* ]]; then
    _bsrun_reply "$cur" options $verb
    return
  fi
  case $verb in
    run) if ((COMP_CWORD == 1)); then _bsrun_reply "$cur" verbs; fi ;;
    help) _bsrun_reply "$cur" verbs ;;
    plugins) _bsrun_reply "$cur" verbs plugins ;;
    config) _bsrun_reply "$cur" verbs config ;;
    "bench sdpa") COMPREPLY=($(compgen -W "small mission long gqa decode" -- "$cur")) ;;
    model | bench | sim | coll | runs | profile) _bsrun_reply "$cur" verbs "$verb" ;;
    "coll check") if [[ $cur == */* ]]; then _bsrun_files "$cur" file; else _bsrun_reply "$cur" algorithms; fi ;;
    "coll explain" | "coll bench") _bsrun_reply "$cur" algorithms ;;
    "sim fit") _bsrun_files "$cur" file ;;
    "model info" | "model run" | "model check" | "model explain" | "model generate" | "model plan") _bsrun_files "$cur" file ;;
    completion) _bsrun_reply "$cur" verbs completion ;;
    "completion words")
      if ((COMP_CWORD == 3)); then
        _bsrun_reply "$cur" kinds
      elif [[ $COMP_CWORD -eq 4 && ${COMP_WORDS[3]} == @(options|valued|verbs) ]]; then
        _bsrun_reply "$cur" verbs
      fi
      ;;
    "plugins inspect" | "plugins why" | "plugins check")
      if [[ $cur == */* ]]; then _bsrun_files "$cur" file; else _bsrun_reply "$cur" plugins; fi
      ;;
    compare) _bsrun_reply "$cur" methods ;;
    "runs show" | "runs why" | "runs replay" | "runs bundle" | "runs fsck") _bsrun_files "$cur" directory ;;
    explain)
      _bsrun_before explain
      if ((${#before[@]} == 0)); then
        _bsrun_reply "$cur" verbs explain
      elif [[ ${#before[@]} -eq 1 && ${before[0]} == mask ]]; then
        _bsrun_reply "$cur" masks
      elif [[ ${#before[@]} -eq 1 && ${before[0]} == method ]]; then
        _bsrun_reply "$cur" methods
      fi
      ;;
  esac
}

complete -F _bsrun bsrun
