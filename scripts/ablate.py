try:
    from minitf.commands.ablate import main
except ModuleNotFoundError as error:
    raise SystemExit(f"{error}: run `pip install -e .` in minitf's own folder first") from None

if __name__ == "__main__":  # its worker processes read this file, too
    main()
