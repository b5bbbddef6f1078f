#include <fcntl.h>

#include "cli/commands.hpp"

int main(int argument_count, char** arguments) {
  // A closed standard descriptor would be taken by the next file that is opened.
  for (int descriptor = 0; descriptor <= 2; ++descriptor)
    if (::fcntl(descriptor, F_GETFD) < 0) ::open("/dev/null", O_RDWR);
  return gradsync::cli::run_tool(argument_count, arguments);
}
