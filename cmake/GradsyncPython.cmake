# The Python package gradsync. In the build folder it is a folder of links, python/gradsync, for PYTHONPATH; `pip install`
# takes the same from the install component python (pyproject.toml), where the library and the tool lie inside the package.
set(package ${PROJECT_SOURCE_DIR}/src/python/gradsync)
set(GRADSYNC_PYTHON_PACKAGE ${PROJECT_BINARY_DIR}/python/gradsync)
set(soname libgradsync.so.${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

file(GLOB_RECURSE sources RELATIVE ${package} CONFIGURE_DEPENDS ${package}/*.py ${package}/*.pyi ${package}/py.typed)
foreach(source ${sources})
  get_filename_component(folder ${GRADSYNC_PYTHON_PACKAGE}/${source} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  file(CREATE_LINK ${package}/${source} ${GRADSYNC_PYTHON_PACKAGE}/${source} SYMBOLIC)
endforeach()
configure_file(${package}/_version.py.in ${GRADSYNC_PYTHON_PACKAGE}/_version.py @ONLY)
file(MAKE_DIRECTORY ${GRADSYNC_PYTHON_PACKAGE}/_lib ${GRADSYNC_PYTHON_PACKAGE}/_bin)
file(CREATE_LINK ${PROJECT_BINARY_DIR}/${soname} ${GRADSYNC_PYTHON_PACKAGE}/_lib/${soname} SYMBOLIC)
file(CREATE_LINK ${PROJECT_BINARY_DIR}/gradsync ${GRADSYNC_PYTHON_PACKAGE}/_bin/gradsync SYMBOLIC)
add_custom_target(python ALL DEPENDS gradsync_lib gradsync)
if(TARGET gradsync_c10d)
  add_dependencies(python gradsync_c10d)
endif()

# Plain files: a wheel cannot hold the links between a library's names.
install(FILES $<TARGET_FILE:gradsync_lib> DESTINATION gradsync/_lib RENAME ${soname} COMPONENT python EXCLUDE_FROM_ALL)
install(PROGRAMS $<TARGET_FILE:gradsync> DESTINATION gradsync/_bin COMPONENT python EXCLUDE_FROM_ALL)
install(FILES ${GRADSYNC_PYTHON_PACKAGE}/_version.py DESTINATION gradsync COMPONENT python EXCLUDE_FROM_ALL)
