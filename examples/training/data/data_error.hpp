// What is wrong with a dataset's file, and what brings it.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>

namespace training {

// Its text names the file, what is wrong with it, and the Debian package to install (or to reinstall).
class DataError : public std::runtime_error {
 public:
  DataError(const std::filesystem::path& file, const std::string& what, const std::string& package)
      : std::runtime_error(file.string() + ": " + what + " (Debian's package '" + package + "' brings this file)") {}
};

}  // namespace training
