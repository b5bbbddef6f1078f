#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/launcher.hpp"

namespace gradsync::cli {
namespace {

std::string words(std::string names) {
  std::erase(names, ',');
  return names;
}

// After `run … --` the shell's own completion of a command takes over.
constexpr const char* bash_script = R"(_gradsync() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}} i
  COMPREPLY=()
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=($(compgen -W "run bench prove show completion help --help --version" -- "$word")); return
  fi
  if [ "$command" = run ]; then
    for ((i = 2; i < COMP_CWORD; ++i)); do
      if [ "${{COMP_WORDS[i]}}" = -- ]; then
        declare -F _command_offset > /dev/null && _command_offset $((i + 1)); return
      fi
    done
  fi
  local choices=""; [ "$command" = bench ] && choices="auto all"
  case $before in
    --algorithm) COMPREPLY=($(compgen -W "$choices {algorithms}" -- "$word")); return;;
    --collective) COMPREPLY=($(compgen -W "{collectives}" -- "$word")); return;;
    --transport) COMPREPLY=($(compgen -W "{transports}" -- "$word")); return;;
    --dtype) COMPREPLY=($(compgen -W "{dtypes}" -- "$word")); return;;
    --op) COMPREPLY=($(compgen -W "{operators}" -- "$word")); return;;
    --host-file|--svg) COMPREPLY=($(compgen -f -- "$word")); return;;
  esac
  case $command in
    run) COMPREPLY=($(compgen -W "-n --timeout --host-file --host-index --port --transport --interface --option --no-prefix --help --" -- "$word"));;
    bench) COMPREPLY=($(compgen -W "{collectives} -n --bytes --dtype --op --algorithm --transport --iterations --timeout --in-place --registered --json --help" -- "$word"));;
    prove) COMPREPLY=($(compgen -W "--ranks --algorithm --collective --threads --json --markdown --help" -- "$word"));;
    show) COMPREPLY=($(compgen -W "{algorithms} -n --collective --rank --root --segments --hosts --svg --help" -- "$word"));;
    completion) COMPREPLY=($(compgen -W "bash" -- "$word"));;
  esac
}}
complete -F _gradsync gradsync
)";

}  // namespace

int completion_command(const std::string& shell) {
  if (shell != "bash")
    return complain("completion", failure(ErrorCode::invalid_argument, "unknown shell '{}'; known: bash", shell),
                    exit_usage);
  using fmt::arg;
  const std::string algorithms = words(real_algorithms()), collectives = words(known_collectives()),
                    transports = words(transports_of_processes()), dtypes = words(known_dtypes()),
                    operators = words(known_reduce_ops());
  fmt::print(fmt::runtime(bash_script), arg("algorithms", algorithms), arg("collectives", collectives),
             arg("transports", transports), arg("dtypes", dtypes), arg("operators", operators));
  return 0;
}

}  // namespace gradsync::cli
