# The one library that applications link: every row below the faces in libgradsync.so, of whose symbols only namespace
# gradsync is visible. Installed with the public headers, the tool and a package file for find_package(gradsync).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
find_package(HWY REQUIRED)

get_property(rows GLOBAL PROPERTY gradsync_rows)
list(REMOVE_ITEM rows cli)
set(objects)
foreach(row ${rows})
  get_target_property(type gradsync_${row} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    list(APPEND objects $<TARGET_OBJECTS:gradsync_${row}>)
  endif()
endforeach()

set(exports ${PROJECT_SOURCE_DIR}/cmake/exports.map)
add_library(gradsync_lib SHARED ${objects})
add_library(gradsync::gradsync ALIAS gradsync_lib)
set_target_properties(gradsync_lib PROPERTIES OUTPUT_NAME gradsync EXPORT_NAME gradsync LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} LINK_DEPENDS ${exports})
target_compile_features(gradsync_lib INTERFACE cxx_std_20)
target_include_directories(gradsync_lib INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(gradsync_lib PRIVATE Threads::Threads fmt::fmt hwy::hwy)
target_link_options(gradsync_lib PRIVATE LINKER:--version-script=${exports})

install(TARGETS gradsync_lib EXPORT gradsyncTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/gradsync DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING
  PATTERN *.hpp PATTERN *.h)
if(TARGET gradsync)
  install(TARGETS gradsync RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gradsync)
install(EXPORT gradsyncTargets NAMESPACE gradsync:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/gradsyncConfig.cmake.in
  ${PROJECT_BINARY_DIR}/gradsyncConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gradsyncConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/gradsyncConfig.cmake ${PROJECT_BINARY_DIR}/gradsyncConfigVersion.cmake
  DESTINATION ${package_dir})
